#include "detach.h"

#include <ctype.h>
#include <string.h>

#include "base/str.h"

#include "args.h"

/* One key of the list, or -1. */
static int key(const char *text, size_t len)
{
	static const char ctrl[] = "ctrl-";
	int c;

	if (len == 1)
		return (unsigned char)*text;
	if (len != strlen(ctrl) + 1 || memcmp(text, ctrl, strlen(ctrl)) != 0)
		return -1;
	c = toupper((unsigned char)text[strlen(ctrl)]);
	return c >= '@' && c <= '_' ? c - '@' : -1;
}

int detach_parse(struct detach *d, const char *text, struct err *e)
{
	const char *p = text;

	d->n = d->held = 0;
	while (p && *p) {
		size_t len = *p == ',' ? 1 : strcspn(p, ",");
		int k = key(p, len);

		if (k < 0 || d->n == DETACH_MAX)
			return usage(e,
				     "--detach-keys: '%s' is no list of at most %d keys as "
				     "ctrl-p,ctrl-q",
				     text, DETACH_MAX);
		d->keys[d->n++] = (char)k;
		p += len;
		p += *p == ',' && p[1];
	}
	return 0;
}

bool detach_feed(struct detach *d, const char *data, size_t len, char *out, size_t *ret_len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		/* what was held and is no beginning any more goes on, up to a later beginning */
		while (d->held && data[i] != d->keys[d->held]) {
			size_t drop = 1;

			while (drop < d->held &&
			       memcmp(d->keys, d->keys + drop, d->held - drop) != 0)
				drop++;
			memcpy(out + n, d->keys, drop);
			n += drop;
			d->held -= drop;
		}
		if (d->n && data[i] == d->keys[d->held]) {
			if (++d->held == d->n) {
				*ret_len = n;
				return true;
			}
			continue;
		}
		out[n++] = data[i];
	}
	*ret_len = n;
	return false;
}
