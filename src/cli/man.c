/*
 * __man FILE: copies the man page's source and puts the command table in place of the comment line
 * "; commands", so that the page cannot drift from the tool.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "cli.h"

/* Text for scdoc: what it would take for markup is escaped. */
static void put(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		bool first = !i || text[i - 1] == '\n';

		if (strchr("\\*_#~<>[]`", text[i]) || (first && strchr("-.", text[i])))
			putchar('\\');
		putchar(text[i]);
	}
}

static void put_text(const char *text)
{
	put(text, strlen(text));
}

static void put_options(const struct opt *o)
{
	for (; o && o->name; o++) {
		if (o->letter)
			printf("*-%c*, ", o->letter);
		printf("*--");
		put_text(o->name);
		printf("*");
		if (o->arg) {
			printf(" ");
			put_text(o->arg);
		}
		printf("\n\t");
		put_text(o->help);
		printf("%s.\n\n", o->many ? " (repeatable)" : "");
	}
}

static void put_examples(const char *p)
{
	while (p && *p) {
		size_t what = strcspn(p, "\t"), line = strcspn(p + what, "\n");

		printf("Example: ");
		put(p, what);
		printf("\n\n```\n%.*s\n```\n\n", (int)(line - 1), p + what + 1);
		p += what + line;
		p += *p == '\n';
	}
}

static void put_command(const struct command *cmd)
{
	printf("## ");
	if (cmd->noun)
		printf("%s ", cmd->noun);
	printf("%s", cmd->name);
	if (cmd->alias)
		printf(" (%s)", cmd->alias);
	printf("\n\n*skerry ");
	if (cmd->noun)
		printf("%s ", cmd->noun);
	printf("%s*", cmd->name);
	if (cmd->options)
		printf(" \\[options\\]");
	putchar(' ');
	put_text(cmd->synopsis);
	printf("\n\n");
	putchar(cmd->summary[0] -
		('a' <= cmd->summary[0] && cmd->summary[0] <= 'z' ? 'a' - 'A' : 0));
	put_text(cmd->summary + 1);
	printf(".\n\n");
	if (cmd->details) {
		put_text(cmd->details);
		printf("\n\n");
	}
	put_options(cmd->options);
	put_examples(cmd->examples);
}

static void put_commands(void)
{
	for (int g = 0; g < GROUP_COUNT; g++) {
		for (const struct command *cmd = commands; cmd->name; cmd++) {
			if (!(cmd->flags & HIDDEN) && (int)cmd->group == g)
				put_command(cmd);
		}
	}
}

int cmd_man(struct cli *c, const struct args *a, struct err *e)
{
	_cleanup_fclose_ FILE *f = fopen(a->pos[0], "re");
	_cleanup_free_ char *line = NULL;
	bool found = false;
	size_t size = 0;

	(void)c;
	if (!f)
		return err_set(e, errno, "open '%s': %m", a->pos[0]);
	while (getline(&line, &size, f) >= 0) {
		if (str_eq(line, "; commands\n")) {
			put_commands();
			found = true;
		} else if (str_eq(line, "; options\n")) {
			put_options(global_options);
			put_options(tool_options);
		} else {
			fputs(line, stdout);
		}
	}
	return found ? 0 : err_set(e, EINVAL, "'%s' has no line '; commands'", a->pos[0]);
}
