#include "args.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "cli.h"

int usage(struct err *e, const char *fmt, ...)
{
	char text[sizeof(e->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return err_reason(e, EINVAL, REASON_USAGE, "%s", text);
}

bool word_in(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; p && *p; p += strcspn(p, " "), p += strspn(p, " ")) {
		if (len == strcspn(p, " ") && !memcmp(p, word, len))
			return true;
	}
	return false;
}

void args_release(struct args *a)
{
	free(a->given);
	free(a->pos);
	*a = (struct args){ 0 };
}

static const struct opt *find_long(const struct opt *table, const char *name, size_t len)
{
	for (; table && table->name; table++) {
		if (strlen(table->name) == len && !memcmp(table->name, name, len))
			return table;
	}
	return NULL;
}

static const struct opt *find_letter(const struct opt *table, char letter)
{
	for (; table && table->name; table++) {
		if (table->letter == letter)
			return table;
	}
	return NULL;
}

static int give(struct args *a, const struct opt *o, const char *value, struct err *e)
{
	if (o->choices && value && !word_in(o->choices, value)) {
		usage(e, "--%s: '%s' is not one of: %s", o->name, value, o->choices);
		return -EINVAL;
	}
	a->given[a->n_given++] = (struct given){ .opt = o, .value = value };
	return 0;
}

/* `--name[=value]`; returns how many words it took. */
static int take_long(struct args *a, const struct opt *own, const struct opt *global, int left,
		     char **argv, struct err *e)
{
	const char *name = argv[0] + 2;
	size_t len = strcspn(name, "=");
	const char *value = name[len] ? name + len + 1 : NULL;
	const struct opt *o = find_long(own, name, len);
	int words = 1;

	if (!o)
		o = find_long(global, name, len);
	if (!o)
		return usage(e, "unknown option '--%.*s'", (int)len, name);
	if (!o->arg && value)
		return usage(e, "option '--%s' takes no value", o->name);
	if (o->arg && !value) {
		if (left < 2)
			return usage(e, "option '--%s' needs a value: %s", o->name, o->arg);
		value = argv[words++];
	}
	if (give(a, o, value, e) < 0)
		return -EINVAL;
	return words;
}

/* `-abc`, `-n value`, `-nvalue`. */
static int take_letters(struct args *a, const struct opt *own, const struct opt *global, int left,
			char **argv, struct err *e)
{
	for (const char *p = argv[0] + 1; *p; p++) {
		const struct opt *o = find_letter(own, *p);
		const char *value = NULL;
		int words = 1;

		if (!o)
			o = find_letter(global, *p);
		if (!o)
			return usage(e, "unknown option '%s'", argv[0]);
		if (o->arg && p[1]) {
			value = p[1] == '=' ? p + 2 : p + 1;
		} else if (o->arg) {
			if (left < 2)
				return usage(e, "option '-%c' needs a value: %s", *p, o->arg);
			value = argv[words++];
		}
		if (give(a, o, value, e) < 0)
			return -EINVAL;
		if (o->arg)
			return words;
	}
	return 1;
}

/* Room for one entry a word at most (a cluster of flags holds one a character). */
static int reserve(struct args *a, int argc, char **argv, struct err *e)
{
	size_t options = a->n_given, words = (size_t)a->n_pos + (size_t)argc;
	struct given *given;
	char **pos;

	for (int i = 0; i < argc; i++)
		options += argv[i][0] == '-' && argv[i][1] != '-' ? strlen(argv[i]) : 1;
	given = reallocarray(a->given, options + 1, sizeof(*given));
	if (given)
		a->given = given;
	pos = reallocarray(a->pos, words + 1, sizeof(*pos));
	if (pos)
		a->pos = pos;
	return given && pos ? 0 : err_set(e, ENOMEM, "out of memory");
}

int args_parse(struct args *a, const struct opt *own, const struct opt *global, int rest_after,
	       bool first, int argc, char **argv, struct err *e)
{
	bool options = true;
	int i = 0;

	if (reserve(a, argc, argv, e) < 0)
		return -ENOMEM;
	while (i < argc) {
		int words;

		if (!options || argv[i][0] != '-' || !argv[i][1]) {
			if (first)
				break;
			a->pos[a->n_pos++] = argv[i++];
			if (rest_after && a->n_pos > rest_after)
				options = false;
			continue;
		}
		if (str_eq(argv[i], "--")) {
			a->dashes = true;
			options = false;
			i++;
			continue;
		}
		words = (argv[i][1] == '-' ? take_long : take_letters)(a, own, global, argc - i,
								       argv + i, e);
		if (words < 0)
			return words;
		i += words;
	}
	return i;
}

bool args_has(const struct args *a, const char *name)
{
	for (size_t i = 0; i < a->n_given; i++) {
		if (str_eq(a->given[i].opt->name, name))
			return true;
	}
	return false;
}

const char *args_get(const struct args *a, const char *name)
{
	for (size_t i = a->n_given; i-- > 0;) {
		if (str_eq(a->given[i].opt->name, name))
			return a->given[i].value;
	}
	return NULL;
}

const char *args_next(const struct args *a, const char *name, size_t *at)
{
	while (*at < a->n_given) {
		const struct given *g = &a->given[(*at)++];

		if (str_eq(g->opt->name, name))
			return g->value;
	}
	return NULL;
}

int args_number(const struct args *a, const char *name, double min, double max, double *ret,
		struct err *e)
{
	const char *text = args_get(a, name);
	double value;
	char *end;

	if (!text)
		return 1;
	errno = 0;
	value = strtod(text, &end);
	/* strtod also reads " 1", "0x1p3", "inf" and "nan" */
	if (errno || !*text || *end || strspn(text, "0123456789.") != strlen(text))
		return usage(e, "--%s: '%s' is not a number", name, text);
	if (!isfinite(value) || value < min || value > max)
		return usage(e, "--%s: %s is not between %.15g and %.15g", name, text, min, max);
	*ret = value;
	return 0;
}
