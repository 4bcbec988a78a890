#include "base/accept.h"

#include "base/banned.h"
#include "base/base64.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/sha1.h"
#include "base/str.h"

#define MAGIC "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

enum { TEXT_MAX = 128 };

void accept_of_key(const char *key, char ret[ACCEPT_SIZE])
{
	_cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX), b64 = BUF_INIT(ACCEPT_SIZE - 1);
	unsigned char digest[20];

	*ret = '\0';
	buf_addf(&text, "%s" MAGIC, key);
	sha1(buf_str(&text), text.len, digest);
	if (!text.failed && !base64_encode(&b64, digest, sizeof(digest)))
		str_copy(ret, ACCEPT_SIZE, buf_str(&b64));
}
