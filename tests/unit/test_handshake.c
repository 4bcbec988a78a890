#include <errno.h>
#include <string.h>

#include "base/accept.h"
#include "base/cleanup.h"

#include "api/handshake.h"
#include "unit.h"

#define KEY "dGhlIHNhbXBsZSBub25jZQ=="

static const struct handshake good = { "websocket", "Upgrade", "13", KEY };

static int check(struct handshake h, struct err *e)
{
	*e = (struct err)ERR_INIT;
	return handshake_check(&h, e);
}

static void accepted(struct handshake h)
{
	struct err e;

	if (check(h, &e) < 0)
		fail_msg("%s", e.text);
}

static void not_asked_for(struct handshake h)
{
	struct err e;

	assert_true(check(h, &e) < 0);
	assert_string_equal(e.reason, "upgrade_required");
	assert_true(e.text[0] && e.hint[0]);
}

static void bad_key(const char *key)
{
	struct handshake h = good;
	struct err e;

	h.key = key;
	assert_int_equal(check(h, &e), -EINVAL);
	assert_string_equal(e.reason, "bad_request");
	assert_string_equal(e.field, "Sec-WebSocket-Key");
}

static void test_upgrade(void **state)
{
	static const char *const yes[] = { "websocket",      "WebSocket",     "WEBSOCKET",
					   "h2c, websocket", "websocket,h2c", " \twebsocket\t ,",
					   ",,websocket" };
	static const char *const no[] = {
		NULL, "", " ", ",", "websocke", "websockets", "websocket/13", "web socket", "h2c"
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
		accepted((struct handshake){ yes[i], "Upgrade", "13", KEY });
	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		not_asked_for((struct handshake){ no[i], "Upgrade", "13", KEY });
}

static void test_connection(void **state)
{
	static const char *const yes[] = { "Upgrade", "upgrade", "keep-alive, Upgrade",
					   "Upgrade , keep-alive", "close,\tUPGRADE" };
	static const char *const no[] = { NULL,        "",         "keep-alive",
					  "close",     "upgrades", "Upgrade keep-alive",
					  "no-upgrade" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
		accepted((struct handshake){ "websocket", yes[i], "13", KEY });
	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		not_asked_for((struct handshake){ "websocket", no[i], "13", KEY });
}

static void test_version(void **state)
{
	static const char *const no[] = { NULL,  "",    "8", "12",  "14",
					  "013", "13 ", "1", "130", "13, 8" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		not_asked_for((struct handshake){ "websocket", "Upgrade", no[i], KEY });
}

static void test_key(void **state)
{
	static const char *const no[] = {
		NULL,
		"",
		"x",
		"dGhlIHNhbXBsZSBub25jZQ",    /* no padding */
		"dGhlIHNhbXBsZSBub25jZQ=",   /* half of it */
		"dGhlIHNhbXBsZSBub25jZQ===", /* more of it */
		"dGhlIHNhbXBsZSBub25jZQ== ", /* a space behind */
		" dGhlIHNhbXBsZSBub25jZQ=",  /* a space before */
		"dGhlIHNhbXBsZSBub25j\nQ==", /* a line's end within */
		"dGhlIHNhbXBsZSBub25jZS==",  /* bits that belong to no byte */
		"dGhlIHNhbXBsZSBub25jZQAA",  /* 18 bytes */
		"dGhlIHNhbXBsZSBub25jZQA=",  /* 17 bytes */
		"dGhlIHNhbXBsZSBub25j====",  /* 15 bytes */
		"____________________-w==",  /* of the other alphabet */
		"!!!!!!!!!!!!!!!!!!!!!!==",
	};

	(void)state;
	accepted(good);
	accepted((struct handshake){ "websocket", "Upgrade", "13", "AAAAAAAAAAAAAAAAAAAAAA==" });
	accepted((struct handshake){ "websocket", "Upgrade", "13", "/////////////////////w==" });
	accepted((struct handshake){ "websocket", "Upgrade", "13", "+++++++++++++++++++++w==" });
	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		bad_key(no[i]);
}

/* RFC 6455, 1.3, and another one counted with an independent program. */
static void test_accept(void **state)
{
	char text[ACCEPT_SIZE];

	(void)state;
	accept_of_key(KEY, text);
	assert_string_equal(text, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
	accept_of_key("AAAAAAAAAAAAAAAAAAAAAA==", text);
	assert_string_equal(text, "ICX+Yqv66kxgM0FcWaLWlFLwTAI=");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_upgrade), cmocka_unit_test(test_connection),
		cmocka_unit_test(test_version), cmocka_unit_test(test_key),
		cmocka_unit_test(test_accept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
