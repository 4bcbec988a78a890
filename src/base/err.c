#define ERR_PLAIN /* these are the functions: nothing stands in for them */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

/* A text that was cut may end within a character: what there is of it goes, since texts end up in
 * JSON. */
static void trim_character(char *text)
{
	size_t len = strlen(text), start = len;
	unsigned char lead;

	while (start && len - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
		start--;
	if (!start)
		return;
	lead = (unsigned char)text[--start];
	if (lead >= 0xc0 && len - start < (lead >= 0xf0 ? 4u : lead >= 0xe0 ? 3u : 2u))
		text[start] = '\0';
}

__attribute__((format(printf, 3, 0))) static int put_text(char *out, size_t size, const char *fmt,
							  va_list ap)
{
	int n = vsnprintf(out, size, fmt, ap);

	if (n < 0)
		out[0] = '\0';
	else if ((size_t)n >= size)
		trim_character(out);
	return n;
}

/* Without an error to fill in, errno carries the code for err_wrap and its like. */
static int code_of(const struct err *e)
{
	int code = e ? e->code : errno;

	return e || code ? -code : -EIO;
}

__attribute__((format(printf, 3, 0))) static void set_text(struct err *e, int code, const char *fmt,
							   va_list ap)
{
	int saved = errno;

	*e = (struct err){ .code = abs(code) };
	errno = abs(code); /* so that %m in a text names this failure */
	put_text(e->text, sizeof(e->text), fmt, ap);
	errno = saved;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (e) {
		va_start(ap, fmt);
		set_text(e, code, fmt, ap);
		va_end(ap);
	} else {
		errno = abs(code);
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
	} else {
		errno = abs(code);
	}
	return -abs(code);
}

int err_field(struct err *e, const char *fmt, ...)
{
	va_list ap;

	if (e) {
		va_start(ap, fmt);
		put_text(e->field, sizeof(e->field), fmt, ap);
		va_end(ap);
	}
	return code_of(e);
}

int err_hint(struct err *e, const char *fmt, ...)
{
	va_list ap;

	if (e) {
		va_start(ap, fmt);
		put_text(e->hint, sizeof(e->hint), fmt, ap);
		va_end(ap);
	}
	return code_of(e);
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char inner[sizeof(e->text)];
	va_list ap;
	size_t room;
	int n;

	if (!e)
		return code_of(e);
	memcpy(inner, e->text, sizeof(inner));
	va_start(ap, fmt);
	n = put_text(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n + 2 < sizeof(e->text)) {
		room = sizeof(e->text) - (size_t)n - 3;
		snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %.*s", (int)room, inner);
		if (strlen(inner) > room)
			trim_character(e->text);
	}
	return code_of(e);
}
