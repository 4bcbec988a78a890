#pragma once
/*
 * One line a record on stderr: `<level> <program>: <text> key=value…`. The supervisor (journald,
 * svlogd) adds the time. Values from outside are quoted by the caller; control characters in a line
 * are replaced, so that nobody can forge a record. Never logged: tokens, values of variables,
 * request bodies.
 */
enum log_level { LOG_ERROR, LOG_WARN, LOG_NOTICE, LOG_DEBUG };

/* `program` is kept by reference. The default level is LOG_NOTICE. */
void log_open(const char *program, enum log_level level);

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)  log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)   log_line(LOG_WARN, __VA_ARGS__)
#define log_notice(...) log_line(LOG_NOTICE, __VA_ARGS__)
#define log_debug(...)  log_line(LOG_DEBUG, __VA_ARGS__)
