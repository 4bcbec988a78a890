#include "sandbox/clock_thread.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/banned.h"
#include "base/clock.h"
#include "base/log.h"

#include "sandbox/exec.h"
#include "sandbox/image.h"

enum { DAY_MS = 24 * 3600 * 1000 };

static int expire(struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	int64_t before = clock_wall_ms() - DAY_MS;
	int r = tx_begin(&t, STORE_RECORD, e);

	if (!r)
		r = idempotency_expire(&t, before, e);
	if (r >= 0)
		r = events_expire(&t, before, e);
	return r < 0 ? r : tx_commit(&t, e);
}

static int clean_layers(struct err *e)
{
	return image_clean(false, e);
}

static const struct {
	const char *name;
	unsigned every; /* seconds */
	int (*run)(struct err *e);
} duties[] = {
	{ "write the database's log back", 1, store_checkpoint },
	{ "prune command records", 5, exec_prune },
	{ "expire keys and events", 600, expire },
	{ "delete unused layers", 60, clean_layers },
};

static void *clock_run(void *arg)
{
	(void)arg;
	for (unsigned second = 1;; second++) {
		struct timespec one = { .tv_sec = 1 };

		while (nanosleep(&one, &one) < 0 && errno == EINTR)
			;
		for (unsigned i = 0; i < ARRAY_SIZE(duties); i++) {
			struct err e = ERR_INIT;

			if (second % duties[i].every == 0 && duties[i].run(&e) < 0)
				log_error("%s: %s", duties[i].name, e.text);
		}
	}
	return NULL;
}

int clock_start(struct err *e)
{
	pthread_t thread;
	int r = pthread_create(&thread, NULL, clock_run, NULL);

	if (r)
		return err_set(e, r, "start the clock: %s", strerror(r));
	pthread_setname_np(thread, "clock");
	pthread_detach(thread);
	return 0;
}
