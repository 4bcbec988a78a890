#include "help.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

#include "lookup.h"

enum { NAME_WIDTH = 22, OPTION_WIDTH = 26, SHORT_WIDTH = 36 };

static int label(char *out, size_t size, const struct command *cmd)
{
	return snprintf(out, size, "%s%s%s%s%s", cmd->noun ? cmd->noun : "", cmd->noun ? " " : "",
			cmd->name, cmd->alias ? ", " : "", cmd->alias ? cmd->alias : "");
}

static void list_group(int group, const char *noun)
{
	char name[64];

	for (const struct command *cmd = commands; cmd->name; cmd++) {
		if (cmd->flags & HIDDEN || (group >= 0 && (int)cmd->group != group) ||
		    (noun && !str_eq(cmd->noun, noun)))
			continue;
		label(name, sizeof(name), cmd);
		printf("  %-*s %s\n", NAME_WIDTH, name, cmd->summary);
	}
}

static void list_options(const struct opt *o)
{
	for (; o && o->name; o++) {
		char left[64];

		snprintf(left, sizeof(left), "%c%c%s --%s%s%s", o->letter ? '-' : ' ',
			 o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
			 o->arg ? " " : "", o->arg ? o->arg : "");
		printf("  %-*s %s%s\n", OPTION_WIDTH, left, o->help,
		       o->many ? " (repeatable)" : "");
	}
}

void help_short(FILE *out)
{
	fprintf(out, "skerry: persistent, isolated Linux machines for agents, tests and people\n\n"
		     "usage: skerry [options] COMMAND [arguments]\n\n");
	for (const struct command *cmd = commands; cmd->name; cmd++) {
		char line[96];

		if (!(cmd->flags & BASIC))
			continue;
		snprintf(line, sizeof(line), "%s%s%s %s", cmd->noun ? cmd->noun : "",
			 cmd->noun ? " " : "", cmd->name, cmd->synopsis);
		fprintf(out, "  skerry %-*s %s\n", SHORT_WIDTH, line, cmd->summary);
	}
	fprintf(out, "\nAll commands and options: skerry help\n");
}

void help_all(void)
{
	printf("skerry: persistent, isolated Linux machines for agents, tests and people\n\n"
	       "usage: skerry [options] COMMAND [arguments]\n");
	for (int g = 0; g < GROUP_COUNT; g++) {
		printf("\n%s\n", group_titles[g]);
		list_group(g, NULL);
	}
	printf("\nOptions, before or after the command\n");
	list_options(global_options);
	list_options(tool_options);
	printf("\nThe sandbox commands are also there as `skerry sandbox …` and `skerry sb …`.\n"
	       "SKERRY_URL and SKERRY_TOKEN override the configuration file.\n"
	       "More: skerry help COMMAND, man skerry\n");
}

static void print_examples(const char *p)
{
	printf("\nExamples\n");
	while (*p) {
		size_t what = strcspn(p, "\t"), line = strcspn(p + what, "\n");

		printf("  # %.*s\n  %.*s\n", (int)what, p, (int)(line - 1), p + what + 1);
		p += what + line;
		p += *p == '\n';
	}
}

void help_command(const struct command *cmd)
{
	printf("skerry %s%s%s: %s\n\nusage: skerry %s%s%s%s%s%s\n", cmd->noun ? cmd->noun : "",
	       cmd->noun ? " " : "", cmd->name, cmd->summary, cmd->noun ? cmd->noun : "",
	       cmd->noun ? " " : "", cmd->name, cmd->options ? " [options]" : "",
	       *cmd->synopsis ? " " : "", cmd->synopsis);
	if (cmd->alias)
		printf("also: skerry %s%s%s\n", cmd->noun ? cmd->noun : "", cmd->noun ? " " : "",
		       cmd->alias);
	if (cmd->details)
		printf("\n%s\n", cmd->details);
	if (cmd->options) {
		printf("\nOptions\n");
		list_options(cmd->options);
	}
	printf("\nOptions of every command\n");
	list_options(global_options);
	if (cmd->examples)
		print_examples(cmd->examples);
}

bool help_noun(int argc, char **argv)
{
	const char *noun = noun_find(argv[0]);

	if (!noun || (argc > 1 && !str_eq(argv[1], "--help") && !str_eq(argv[1], "-h")))
		return false;
	printf("usage: skerry %s COMMAND [arguments]\n\n", noun);
	if (str_eq(noun, "sandbox"))
		list_group(GROUP_SANDBOX, NULL);
	else
		list_group(-1, noun);
	printf("\nMore about one: skerry help %s %s\n", noun,
	       str_eq(noun, "command") ? "logs" : "list");
	return true;
}

int cmd_help(struct cli *c, const struct args *a, struct err *e)
{
	const struct command *cmd;
	int words;

	(void)c;
	if (!a->n_pos) {
		help_all();
		return 0;
	}
	cmd = command_find(a->n_pos, a->pos, &words);
	if (cmd && words == a->n_pos)
		help_command(cmd);
	else if (cmd || !help_noun(a->n_pos, a->pos))
		return command_unknown(a->n_pos, a->pos, e);
	return 0;
}
