#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/banned.h"

static const char *log_program = "skerry";
static enum log_level log_limit = LOG_NOTICE;

void log_open(const char *program, enum log_level level)
{
	log_program = program;
	log_limit = level;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "error", "warn", "notice", "debug" };
	char line[1024];
	va_list ap;
	int n, m;

	if (level > log_limit)
		return;
	n = snprintf(line, sizeof(line), "%s %s: ", names[level], log_program);
	if (n < 0 || (size_t)n >= sizeof(line))
		return;
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n = (size_t)n + (size_t)m >= sizeof(line) - 1 ? (int)sizeof(line) - 2 : n + m;
	for (int i = 0; i < n; i++) {
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = '?';
	}
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nobody is left to tell */
}
