#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"

#include "out.h"

enum { EVERY_MS = 100, FIRST_MS = 300, WIDTH = 20, NAME_WIDTH = 24 };

static const double MIB = 1024.0 * 1024;

void progress_init(struct progress *p, const char *name, int64_t total, bool quiet)
{
	const char *slash = strrchr(name, '/');
	uint64_t now = clock_mono_ns();

	*p = (struct progress){
		.shown = !quiet && isatty(STDERR_FILENO),
		.name = slash && slash[1] ? slash + 1 : name,
		.total = total,
		.began_ns = now,
		/* what is done at once needs no bar */
		.drawn_ns = now + (FIRST_MS - EVERY_MS) * NS_PER_MS,
	};
}

static void draw_bar(const struct progress *p)
{
	int full = p->total > 0 ? (int)((double)p->done / (double)p->total * WIDTH) : WIDTH;

	fputs(" [", stderr);
	for (int i = 0; i < WIDTH; i++)
		fputc(i < full ? '=' : i == full ? '>' : ' ', stderr);
	fputc(']', stderr);
}

static void draw(const struct progress *p, uint64_t now)
{
	double seconds = (double)(now - p->began_ns) / NS_PER_SEC;
	double rate = seconds > 0 ? (double)p->done / seconds : 0;
	_cleanup_buf_ struct buf name = BUF_INIT(4096);

	out_escape(&name, p->name, strlen(p->name));
	fprintf(stderr, "\r\033[K%.*s", NAME_WIDTH, buf_str(&name));
	if (p->total > 0) {
		int64_t left = p->total > p->done ? p->total - p->done : 0;

		draw_bar(p);
		fprintf(stderr, " %3.0f %%", 100.0 * (double)p->done / (double)p->total);
		fprintf(stderr, " %.1f MiB  %.1f MiB/s", (double)p->done / MIB, rate / MIB);
		if (rate > 0)
			fprintf(stderr, "  %.0f s left", (double)left / rate);
	} else {
		fprintf(stderr, " %.1f MiB  %.1f MiB/s", (double)p->done / MIB, rate / MIB);
	}
	fflush(stderr);
}

void progress_add(struct progress *p, int64_t bytes)
{
	uint64_t now;

	p->done += bytes;
	if (!p->shown)
		return;
	now = clock_mono_ns();
	if (now < p->drawn_ns + EVERY_MS * NS_PER_MS)
		return;
	draw(p, now);
	p->drawn_ns = now;
}

void progress_end(struct progress *p)
{
	if (p->shown && p->drawn_ns > p->began_ns + FIRST_MS * NS_PER_MS - EVERY_MS * NS_PER_MS)
		fputs("\r\033[K", stderr);
	p->shown = false;
}
