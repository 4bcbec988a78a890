#include "wire/bytes.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

void dec_init(struct dec *d, const void *data, size_t len)
{
	*d = (struct dec){ .p = data, .left = len };
}

static const void *dec_take(struct dec *d, size_t len)
{
	const void *at = d->p;

	if (d->bad || len > d->left) {
		d->bad = true;
		return NULL;
	}
	if (len)
		d->p += len;
	d->left -= len;
	return at;
}

uint8_t dec_u8(struct dec *d)
{
	const uint8_t *p = dec_take(d, 1);

	return p ? *p : 0;
}

uint32_t dec_u32(struct dec *d)
{
	const void *p = dec_take(d, 4);
	uint32_t v = 0;

	if (p)
		memcpy(&v, p, 4);
	return le32toh(v);
}

uint64_t dec_u64(struct dec *d)
{
	const void *p = dec_take(d, 8);
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, 8);
	return le64toh(v);
}

const char *dec_str(struct dec *d, size_t max)
{
	uint32_t len = dec_u32(d);
	const char *s;

	if (d->bad || len == 0 || len - 1 > max) {
		d->bad = true;
		return "";
	}
	s = dec_take(d, len);
	if (!s || memchr(s, '\0', len) != s + len - 1) {
		d->bad = true;
		return "";
	}
	return s;
}

char **dec_strv(struct dec *d, size_t most, size_t max_each)
{
	uint32_t count = dec_u32(d);
	char **list;

	/* each string takes five bytes at least, so a false count cannot make us allocate */
	if (d->bad || count > most || count > d->left / 5) {
		d->bad = true;
		return NULL;
	}
	list = calloc((size_t)count + 1, sizeof(*list));
	if (!list) {
		d->bad = true;
		d->no_memory = true;
		return NULL;
	}
	for (uint32_t i = 0; i < count; i++)
		list[i] = (char *)dec_str(d, max_each);
	if (d->bad) {
		free(list);
		return NULL;
	}
	return list;
}

const void *dec_rest(struct dec *d, size_t *ret_len)
{
	*ret_len = d->bad ? 0 : d->left;
	return dec_take(d, *ret_len);
}

bool dec_done(const struct dec *d)
{
	return !d->bad && d->left == 0;
}

void enc_u8(struct buf *b, uint8_t v)
{
	buf_add(b, &v, 1);
}

void enc_u32(struct buf *b, uint32_t v)
{
	v = htole32(v);
	buf_add(b, &v, 4);
}

void enc_u64(struct buf *b, uint64_t v)
{
	v = htole64(v);
	buf_add(b, &v, 8);
}

void enc_str(struct buf *b, const char *s)
{
	size_t len = s ? strlen(s) : 0;

	enc_u32(b, (uint32_t)len + 1);
	buf_add(b, s ? s : "", len + 1);
}

void enc_strv(struct buf *b, const char *const *list)
{
	uint32_t count = 0;

	while (list && list[count])
		count++;
	enc_u32(b, count);
	for (uint32_t i = 0; i < count; i++)
		enc_str(b, list[i]);
}
