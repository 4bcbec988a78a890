/* The scripts only carry words to `skerry __complete` and candidates back; see complete.c. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "cli.h"

static const struct {
	const char *shell, *script;
} scripts[] = {
	{ "bash",
	  "_skerry()\n"
	  "{\n"
	  "	local i word glue= line cut words=()\n"
	  "\n"
	  "	# bash splits words at : and =; here they belong together\n"
	  "	for ((i = 1; i <= COMP_CWORD; i++)); do\n"
	  "		word=${COMP_WORDS[i]}\n"
	  "		if [[ ${#words[@]} -gt 0 && ( -n $glue || $word == [:=]* ) ]]; then\n"
	  "			words[${#words[@]} - 1]+=$word\n"
	  "		else\n"
	  "			words+=(\"$word\")\n"
	  "		fi\n"
	  "		glue=\n"
	  "		[[ $word == *[:=] ]] && glue=1\n"
	  "	done\n"
	  "	word=${words[${#words[@]} - 1]}\n"
	  "	cut=${word%\"${word##*[:=]}\"}\n"
	  "	COMPREPLY=()\n"
	  "	while IFS= read -r line; do\n"
	  "		if [[ $line == :file ]]; then\n"
	  "			compopt -o default 2>/dev/null\n"
	  "			return\n"
	  "		fi\n"
	  "		line=${line%%$'\\t'*}\n"
	  "		COMPREPLY+=(\"${line#\"$cut\"}\")\n"
	  "	done < <(\"${COMP_WORDS[0]}\" __complete -- \"${words[@]}\" 2>/dev/null)\n"
	  "}\n"
	  "complete -F _skerry skerry\n" },
	{ "zsh",
	  "#compdef skerry\n"
	  "_skerry()\n"
	  "{\n"
	  "	local line\n"
	  "	local -a found\n"
	  "\n"
	  "	while IFS= read -r line; do\n"
	  "		if [[ $line == :file ]]; then\n"
	  "			_files\n"
	  "			return\n"
	  "		fi\n"
	  "		found+=(\"${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}\")\n"
	  "	done < <(\"${words[1]}\" __complete -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)\n"
	  "	_describe skerry found\n"
	  "}\n"
	  "if [[ ${funcstack[1]} == _skerry ]]; then\n"
	  "	_skerry \"$@\"\n"
	  "else\n"
	  "	compdef _skerry skerry\n"
	  "fi\n" },
	{ "fish",
	  "function __skerry_complete\n"
	  "	set -l words (commandline -opc)\n"
	  "	set -l current (commandline -ct)\n"
	  "	set -l found ($words[1] __complete -- $words[2..-1] \"$current\" 2>/dev/null)\n"
	  "	if test \"$found\" = :file\n"
	  "		__fish_complete_path \"$current\"\n"
	  "	else\n"
	  "		printf '%s\\n' $found\n"
	  "	end\n"
	  "end\n"
	  "complete -c skerry -f -a '(__skerry_complete)'\n" },
};

int cmd_completion(struct cli *c, const struct args *a, struct err *e)
{
	(void)c;
	for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
		if (str_eq(a->pos[0], scripts[i].shell)) {
			fputs(scripts[i].script, stdout);
			return 0;
		}
	}
	return usage(e, "'%s' is not one of: bash zsh fish", a->pos[0]);
}
