#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

__attribute__((format(printf, 3, 0))) static void set_text(struct err *e, int code, const char *fmt,
							   va_list ap)
{
	int saved = errno;

	*e = (struct err){ .code = abs(code) };
	errno = abs(code); /* so that %m in a text names this failure */
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	errno = saved;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (e) {
		va_start(ap, fmt);
		set_text(e, code, fmt, ap);
		va_end(ap);
	}
	return -abs(code);
}

int err_reason(struct err *e, int code, const char *reason, const char *fmt, ...)
{
	va_list ap;

	if (e) {
		va_start(ap, fmt);
		set_text(e, code, fmt, ap);
		va_end(ap);
		e->reason = reason;
	}
	return -abs(code);
}

int err_field(struct err *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->field, sizeof(e->field), fmt, ap);
	va_end(ap);
	return -e->code;
}

int err_hint(struct err *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->hint, sizeof(e->hint), fmt, ap);
	va_end(ap);
	return -e->code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char inner[sizeof(e->text)];
	int saved = errno;
	va_list ap;
	int n;

	if (!e)
		return -saved;
	memcpy(inner, e->text, sizeof(inner));
	va_start(ap, fmt);
	n = vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n + 2 < sizeof(e->text))
		snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %.*s",
			 (int)(sizeof(e->text) - (size_t)n - 3), inner);
	return -e->code;
}
