#include "out.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#include "cli.h"

enum { TEXT_MAX = 64 * 1024, FIELD_WIDTH = 14, JSON_MAX = 256 * 1024 * 1024 };

/* One character: its length in bytes, 0 where the bytes are not UTF-8. */
static size_t decode(const char *s, size_t len, uint32_t *ret)
{
	unsigned char first = (unsigned char)*s;
	size_t n = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
	uint32_t c = n == 1 ? first : first & (0xffu >> (n + 1));

	if (n > len || !utf8_valid(s, n))
		return 0;
	for (size_t i = 1; i < n; i++)
		c = c << 6 | ((unsigned char)s[i] & 0x3f);
	*ret = c;
	return n;
}

/* Moves the cursor, rings, ends the line, or turns the reading direction. */
static bool unprintable(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200e && c <= 0x200f) ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

void out_escape(struct buf *out, const char *text, size_t len)
{
	static const char letters[] = "\aa\bb\tt\nn\vv\ff\rr";

	for (size_t i = 0; i < len;) {
		uint32_t c = 0;
		size_t n = decode(text + i, len - i, &c);
		const char *letter;

		if (!n) {
			buf_addf(out, "\\x%02x", (unsigned char)text[i++]);
			continue;
		}
		letter = c >= '\a' && c <= '\r' ? strchr(letters, (int)c) : NULL;
		if (letter)
			buf_addf(out, "\\%c", letter[1]);
		else if (c < 0x80 && unprintable(c))
			buf_addf(out, "\\x%02x", c);
		else if (unprintable(c))
			buf_addf(out, "\\u%04x", c);
		else
			buf_add(out, text + i, n);
		i += n;
	}
}

size_t out_width(const char *text)
{
	size_t len = strlen(text), width = 0;

	for (size_t i = 0; i < len;) {
		uint32_t c = 0;
		size_t n = decode(text + i, len - i, &c);
		int w = n ? wcwidth((wchar_t)c) : 1;

		width += w > 0 ? (size_t)w : 0;
		i += n ? n : 1;
	}
	return width;
}

void table_init(struct table *t, const char *const *titles)
{
	*t = (struct table){ .titles = titles };
	while (titles[t->columns])
		t->columns++;
}

void table_release(struct table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct table){ 0 };
}

void table_cell(struct table *t, const char *text)
{
	struct buf b = BUF_INIT(JSON_MAX); /* the script of a command may be long */
	char **cells = reallocarray(t->cells, t->n + 1, sizeof(*cells));

	if (cells)
		t->cells = cells;
	if (!text || !*text)
		text = "-";
	out_escape(&b, text, strlen(text));
	if (cells)
		cells[t->n] = buf_detach(&b);
	if (!cells || !cells[t->n])
		t->failed = true;
	else
		t->n++;
	buf_release(&b);
}

/* How many bytes of the text take at most so many columns. */
static size_t fitting(const char *text, size_t columns)
{
	size_t len = strlen(text), width = 0, i = 0;

	while (i < len) {
		uint32_t c = 0;
		size_t n = decode(text + i, len - i, &c);
		int w = n ? wcwidth((wchar_t)c) : 1;

		width += w > 0 ? (size_t)w : 0;
		if (width > columns)
			break;
		i += n ? n : 1;
	}
	return i;
}

/* `room` is what the last cell may take; no blanks at the end of a line. */
static void print_row(char *const *cells, const size_t *widths, size_t columns, size_t room)
{
	const char *last = cells[columns - 1];

	for (size_t i = 0; i + 1 < columns; i++)
		printf("%s%*s", cells[i], (int)(widths[i] - out_width(cells[i]) + 2), "");
	if (out_width(last) > room)
		printf("%.*s…\n", (int)fitting(last, room - 1), last);
	else
		printf("%s\n", last);
}

/* What a line of the terminal leaves for the last column; never less than its title needs. */
static size_t last_room(const struct table *t, const size_t *widths)
{
	struct winsize w = { 0 };
	size_t used = 0, title = out_width(t->titles[t->columns - 1]);

	if (!t->fit || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || !w.ws_col)
		return SIZE_MAX;
	for (size_t i = 0; i + 1 < t->columns; i++)
		used += widths[i] + 2;
	return w.ws_col > used + title ? w.ws_col - used : title;
}

int table_print(struct table *t, bool terminal, struct err *e)
{
	size_t widths[COLUMNS_MAX] = { 0 }, room;

	if (t->failed || !t->columns || t->columns > COLUMNS_MAX)
		return err_set(e, ENOMEM, "out of memory");
	if (!terminal) {
		for (size_t i = 0; i < t->n; i++)
			printf("%s%c", t->cells[i], (i + 1) % t->columns ? '\t' : '\n');
		return 0;
	}
	for (size_t i = 0; i < t->columns; i++)
		widths[i] = out_width(t->titles[i]);
	for (size_t i = 0; i < t->n; i++) {
		size_t w = out_width(t->cells[i]);

		if (w > widths[i % t->columns])
			widths[i % t->columns] = w;
	}
	room = last_room(t, widths);
	print_row((char *const *)t->titles, widths, t->columns, room);
	for (size_t i = 0; i + t->columns <= t->n; i += t->columns)
		print_row(t->cells + i, widths, t->columns, room);
	return 0;
}

void out_field(const char *name, const char *value)
{
	_cleanup_buf_ struct buf b = BUF_INIT(JSON_MAX);

	if (!value)
		return;
	out_escape(&b, value, strlen(value));
	if (isatty(STDOUT_FILENO))
		printf("%-*s %s\n", FIELD_WIDTH, name, buf_str(&b));
	else
		printf("%s\t%s\n", name, buf_str(&b));
}

__attribute__((format(printf, 2, 0))) static void escape_text(struct buf *out, const char *fmt,
							      va_list ap)
{
	_cleanup_buf_ struct buf raw = BUF_INIT(TEXT_MAX);

	buf_vaddf(&raw, fmt, ap);
	out_escape(out, buf_str(&raw), raw.len);
}

void out_line(const char *fmt, ...)
{
	_cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX * 6);
	va_list ap;

	va_start(ap, fmt);
	escape_text(&b, fmt, ap);
	va_end(ap);
	puts(buf_str(&b));
}

void out_escape_json(struct buf *out, const char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len;) {
		uint32_t c = 0;
		size_t n = decode(text + i, len - i, &c);

		if (c != '\n' && unprintable(c))
			buf_addf(out, "\\u%04x", c);
		else
			buf_add(out, text + i, n ? n : 1);
		i += n ? n : 1;
	}
}

int out_json(const json_t *j, struct err *e)
{
	_cleanup_free_ char *text =
		json_dumps(j, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
	_cleanup_buf_ struct buf b = BUF_INIT(JSON_MAX);

	if (text)
		out_escape_json(&b, text);
	if (!text || b.failed)
		return err_set(e, ENOMEM, "out of memory");
	puts(buf_str(&b));
	return 0;
}

void out_note(const char *fmt, ...)
{
	_cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX * 6);
	va_list ap;

	va_start(ap, fmt);
	escape_text(&b, fmt, ap);
	va_end(ap);
	fflush(stdout);
	fprintf(stderr, "skerry: %s\n", buf_str(&b));
}

static void error_json(const struct err *e)
{
	json_t *j = json_pack("{s:{s:s, s:s}}", "error", "code", e->reason ? e->reason : "failed",
			      "message", e->text);
	_cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX);
	char *text;

	if (j && *e->hint)
		json_object_set_new(json_object_get(j, "error"), "hint", json_string(e->hint));
	text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	out_escape_json(&b,
			text ? text : "{\"error\":{\"code\":\"failed\",\"message\":\"failed\"}}");
	fprintf(stderr, "%s\n", buf_str(&b));
	free(text);
	json_decref(j);
}

static void error_line(const char *before, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX);

	out_escape(&b, text, strlen(text));
	fprintf(stderr, "%s%s\n", before, buf_str(&b));
}

/* The texts of errors are cut at a byte count, perhaps inside a character. */
static void mend_end(char *text)
{
	size_t len = strlen(text), rest = 0, want;
	unsigned char first;

	while (rest < 3 && rest < len && ((unsigned char)text[len - 1 - rest] & 0xc0) == 0x80)
		rest++;
	if (rest == len)
		return;
	first = (unsigned char)text[len - 1 - rest];
	want = first >= 0xf8 ? 0 : first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
	if (want > rest)
		text[len - 1 - rest] = '\0';
}

void out_error(bool json, const struct err *e)
{
	struct err shown = *e;

	fflush(stdout);
	mend_end(shown.text);
	mend_end(shown.hint);
	if (json) {
		error_json(&shown);
		return;
	}
	error_line("skerry: ", shown.text);
	if (*shown.hint)
		error_line("  hint: ", shown.hint);
}

int out_bytes(int fd, const void *data, size_t len, struct err *e)
{
	int r = fd == STDOUT_FILENO && fflush(stdout) ? -errno : write_all(fd, data, len);

	if (r < 0)
		return err_reason(e, r, REASON_OUTPUT, "write output: %s", strerror(-r));
	return 0;
}

int out_flush(struct err *e)
{
	errno = EIO; /* for a failure that an earlier call saw */
	if (fflush(stdout) || ferror(stdout))
		return err_reason(e, errno, REASON_OUTPUT, "write output: %s", strerror(errno));
	return 0;
}
