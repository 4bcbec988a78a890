#include "hints.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

enum { HINT_MAX = 1024 };

static const char down[] =
	"start it: sudo make up; look: skerry doctor, /var/log/skerry or journalctl -u 'skerry*'";

/* NAME becomes the sandbox's. A word without a row keeps the API's hint. */
static const struct {
	const char *code;
	int status; /* 0: any */
	const char *text;
} hints[] = {
	{ "unauthorized", 0,
	  "ask for one where the API runs: sudo skerryd --add-token YOU; "
	  "then: skerry config set token -" },
	{ "image_not_found", 0, "see: skerry image list" },
	{ "sandbox_not_found", 0, "see: skerry list" },
	{ "command_not_found", 404, "see: skerry command list NAME" },
	{ "sandbox_stopped", 0, "start it: skerry start NAME" },
	{ "sandbox_starting", 0, "wait until it runs: skerry wait NAME" },
	{ "sandbox_running", 0, "stop it: skerry stop NAME" },
	{ "sandbox_stopping", 0, "wait until it has stopped: skerry wait NAME --state stopped" },
	{ "sandbox_restoring", 0, "its disk is being made: skerry wait NAME" },
	{ "sandbox_failed", 0,
	  "why: skerry get NAME; then: skerry start NAME, or skerry destroy NAME" },
	{ "path_not_found", 0, "the API may be of another version: skerry version" },
	{ "method_not_allowed", 0, "the API may be of another version: skerry version" },
	/* what stands before the API answers in its place, without a code; see api.c */
	{ "bad_gateway", 502, down },
	{ "unavailable", 503, down },
};

static const struct {
	int status;
	const char *text;
} otherwise[] = {
	{ 429, "try again a little later" },
	{ 503, "try again a little later" },
};

/* Known sandboxes have names that need no encoding. */
static void put(struct err *e, const char *text, const char *path)
{
	static const char before[] = "/sandboxes/";
	_cleanup_buf_ struct buf b = BUF_INIT(HINT_MAX);
	const char *name = strstr(path, before), *at;
	size_t len = name ? strcspn(name + strlen(before), "/?") : 0;

	while (len && (at = strstr(text, "NAME"))) {
		buf_add(&b, text, (size_t)(at - text));
		buf_add(&b, name + strlen(before), len);
		text = at + strlen("NAME");
	}
	buf_adds(&b, text);
	err_hint(e, "%s", buf_str(&b));
}

void hint_answer(struct err *e, int status, const char *path, const char *theirs)
{
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
		if (!str_eq(hints[i].code, e->reason) ||
		    (hints[i].status && hints[i].status != status))
			continue;
		put(e, hints[i].text, path);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(otherwise) && !theirs; i++) {
		if (otherwise[i].status == status)
			theirs = otherwise[i].text;
	}
	if (theirs)
		err_hint(e, "%s", theirs);
}

void hint_silence(struct err *e, bool local)
{
	err_hint(e, "%s", local ? down : "is skerryd running there? on that host: skerry doctor");
}
