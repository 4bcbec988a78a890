#include "sandbox/identifier.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "base/str.h"

enum { IMAGE_NAME_MAX = 128 };

static const char identifier_set[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
static const char image_set[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
static const char tag_set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

static bool reserved(const char *s)
{
	return id_valid(s, NULL) || !strcasecmp(s, "snapshots") || !strcasecmp(s, "yaml");
}

int identifier_check(const char *s, struct err *e)
{
	size_t len = strlen(s);

	if (!len || len > IDENTIFIER_MAX || strspn(s, identifier_set) != len || s[0] == '-' ||
	    s[len - 1] == '-')
		return err_reason(e, EINVAL, "invalid_field",
				  "an identifier has 1 to %d characters of A-Z a-z 0-9 _ -, with "
				  "no hyphen at either end",
				  IDENTIFIER_MAX);
	if (reserved(s))
		return err_reason(e, EINVAL, "invalid_field",
				  "the identifier '%s' is reserved: 'snapshots', 'yaml' and the "
				  "form of an id are not allowed",
				  s);
	return 0;
}

bool identifier_valid(const char *s)
{
	struct err e;

	return identifier_check(s, &e) == 0;
}

static void trim_end(char *s)
{
	for (size_t n = strlen(s); n && s[n - 1] == '-';)
		s[--n] = '\0';
}

void identifier_derive(const char *name, char out[IDENTIFIER_MAX + 1])
{
	size_t n = 0;

	for (; *name && n < IDENTIFIER_MAX; name++) {
		if ((*name & 0xc0) == 0x80)
			continue; /* one hyphen for a character of many bytes */
		if (strchr(identifier_set, *name) && *name != '-')
			out[n++] = *name;
		else if (n && out[n - 1] != '-')
			out[n++] = '-';
	}
	out[n] = '\0';
	trim_end(out);
	if (*out && reserved(out)) {
		char base[IDENTIFIER_MAX + 1];

		memcpy(base, out, sizeof(base));
		identifier_number(base, 1, out);
	}
}

void identifier_number(const char *identifier, unsigned n, char out[IDENTIFIER_MAX + 1])
{
	char suffix[16];
	int len = snprintf(suffix, sizeof(suffix), "-%u", n);
	size_t room = (size_t)(IDENTIFIER_MAX - len), have = strlen(identifier);

	if (have > room)
		have = room;
	memcpy(out, identifier, have);
	out[have] = '\0';
	trim_end(out);
	memcpy(out + strlen(out), suffix, (size_t)len + 1);
}

void identifier_hostname(const char *identifier, char out[IDENTIFIER_MAX + 1])
{
	size_t n = 0;

	for (; n < IDENTIFIER_MAX && identifier[n]; n++)
		out[n] = identifier[n] == '_' ? '-' : (char)tolower((unsigned char)identifier[n]);
	out[n] = '\0';
	/* a label neither starts nor ends with a hyphen, an identifier may with a '_' */
	if (out[0] == '-')
		out[0] = 'x';
	if (n > 1 && out[n - 1] == '-')
		out[n - 1] = 'x';
}

int name_check(const char *s, struct err *e)
{
	for (const unsigned char *p = (const unsigned char *)s; *p; p++) {
		if (*p < 0x20 || *p == 0x7f || (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
			return err_reason(e, EINVAL, "invalid_field",
					  "the name contains a control character");
	}
	return 0;
}

int image_name_check(const char *s, struct err *e)
{
	size_t name = strspn(s, image_set), len = strlen(s);
	bool ok = name && strchr("._-", s[0]) == NULL && len <= IMAGE_NAME_MAX;

	if (ok && s[name] == ':') {
		size_t tag = strspn(s + name + 1, tag_set);

		ok = tag && !s[name + 1 + tag];
	} else if (ok) {
		ok = !s[name];
	}
	if (ok)
		return 0;
	return err_reason(e, EINVAL, "invalid_field",
			  "an image name is a-z 0-9 . _ - (a letter or digit first), then "
			  "optionally ':' and a tag, %d characters at most",
			  IMAGE_NAME_MAX);
}

int env_name_check(const char *s, struct err *e)
{
	bool ok = *s && !isdigit((unsigned char)*s);

	for (; *s; s++)
		ok = ok && (isalnum((unsigned char)*s) || *s == '_');
	if (ok)
		return 0;
	return err_reason(e, EINVAL, "invalid_field",
			  "a variable's name has letters, digits and '_', and no digit first");
}

int path_check(const char *s, struct err *e)
{
	if (*s == '/')
		return 0;
	return err_reason(e, EINVAL, "invalid_field", "the path '%s' is not absolute", s);
}

int signal_number(const char *name)
{
	if (str_starts(name, "SIG"))
		name += 3;
	for (int n = 1; n < NSIG; n++) {
		const char *known = sigabbrev_np(n);

		if (known && str_eq(known, name))
			return n;
	}
	return 0;
}

void signal_text(int signal, char out[24])
{
	const char *known = sigabbrev_np(signal);

	if (known)
		snprintf(out, 24, "SIG%s", known);
	else
		snprintf(out, 24, "SIGRTMIN+%d", signal - SIGRTMIN);
}

int signal_check(const char *s, struct err *e)
{
	if (signal_number(s))
		return 0;
	return err_reason(e, EINVAL, "invalid_field", "'%s' is not the name of a signal", s);
}

static const struct size sizes[] = {
	{ "1x2", 1, 2 },   { "2x4", 2, 4 },     { "3x6", 3, 6 },     { "4x8", 4, 8 },
	{ "5x10", 5, 10 }, { "6x12", 6, 12 },   { "7x14", 7, 14 },   { "8x16", 8, 16 },
	{ "9x18", 9, 18 }, { "10x20", 10, 20 }, { "11x22", 11, 22 }, { "12x24", 12, 24 },
};

const char *const size_names[] = { "1x2",  "2x4",  "3x6",   "4x8",   "5x10",  "6x12", "7x14",
				   "8x16", "9x18", "10x20", "11x22", "12x24", NULL };

const struct size *size_find(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		if (str_eq(sizes[i].name, name))
			return &sizes[i];
	}
	return NULL;
}
