#pragma once
/*
 * An error that can be told to a person.
 *
 * Functions return 0 (or a count) on success and a negative errno on failure; the story is in the
 * `struct err` passed last. The first failure sets it, each layer above wraps it once. Whoever
 * handles the error logs it or returns it, never both.
 */
#include <stdarg.h>

struct err {
	int code; /* positive errno; 0 while nothing failed */
	const char *
		reason; /* stable word for clients ("sandbox_not_found"), static storage; or NULL */
	const char
		*cause; /* name of the errno behind it ("EXDEV"), where that tells more; or NULL */
	char field[64]; /* the request field at fault ("apps[2].command"), or "" */
	char text[256]; /* what failed, lower case, no full stop */
	char hint[128]; /* what to do about it, or "" */
};

#define ERR_INIT                                                                                   \
	{                                                                                          \
		0                                                                                  \
	}

/* Sets the error; `code` may be given with either sign. Returns -|code|. `e` may be NULL, here and
 * below: errno then keeps the code. A text is cut between characters where it does not fit. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same, with the stable word a client can rely on. */
int err_reason(struct err *e, int code, const char *reason, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Names the request field at fault on an error that is already set. Returns -e->code. */
int err_field(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Says what the caller can do about an error that is already set. Returns -e->code. */
int err_hint(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "<fmt>: " before the text. Returns -e->code, so that `return err_wrap(e, …)` works. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#if defined(__clang_analyzer__) && !defined(ERR_PLAIN)
/* It reads one file at a time: without this it follows every failure as if it might be a success. */
static inline int err_negative(int r)
{
	if (r >= 0)
		__builtin_unreachable();
	return r;
}
#define err_set(...)    err_negative(err_set(__VA_ARGS__))
#define err_reason(...) err_negative(err_reason(__VA_ARGS__))
#define err_field(...)  err_negative(err_field(__VA_ARGS__))
#define err_hint(...)   err_negative(err_hint(__VA_ARGS__))
#define err_wrap(...)   err_negative(err_wrap(__VA_ARGS__))
#endif
