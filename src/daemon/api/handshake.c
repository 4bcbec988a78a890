#include "api/handshake.h"

#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <strings.h>

#include "base/banned.h"
#include "base/str.h"

enum { KEY_LEN = 24, KEY_BYTES = 16 };

/* Is `word` one of a comma-separated list, whatever the case. */
static bool lists(const char *list, const char *word)
{
	size_t want = strlen(word);

	while (list && *list) {
		size_t len;

		list += strspn(list, " \t,");
		len = strcspn(list, ",");
		while (len && isspace((unsigned char)list[len - 1]))
			len--;
		if (len == want && !strncasecmp(list, word, len))
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

int handshake_check(const struct handshake *h, struct err *e)
{
	unsigned char bytes[KEY_BYTES];
	size_t len = 0;

	if (!lists(h->upgrade, "websocket") || !lists(h->connection, "upgrade") || !h->version ||
	    !str_eq(h->version, "13")) {
		err_reason(e, EPROTOTYPE, "upgrade_required",
			   "this path is a WebSocket (version 13), and none was asked for");
		return err_hint(e, "send 'Upgrade: websocket', 'Connection: Upgrade' and "
				   "'Sec-WebSocket-Version: 13'");
	}
	if (!h->key || strlen(h->key) != KEY_LEN ||
	    sodium_base642bin(bytes, sizeof(bytes), h->key, KEY_LEN, NULL, &len, NULL,
			      sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    len != KEY_BYTES) {
		err_reason(e, EINVAL, "bad_request",
			   "'Sec-WebSocket-Key' is not 16 bytes in base64");
		return err_field(e, "Sec-WebSocket-Key");
	}
	return 0;
}
