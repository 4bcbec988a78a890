#pragma once
/* Images: names for layers. A layer is unpacked by the backend from a tar that streams in. */
#include <stdatomic.h>

#include "store/tables.h"

struct image_request {
	const char *name, *user, *work_dir;
};

/* Reads the tar from `fd` to its end. `cut` (NULL: never) says then whether that was its real end;
 * an archive that was cut between two members looks whole. */
int image_create(const struct image_request *in, int fd, const atomic_bool *cut,
		 const struct actor *a, struct image_row *ret, struct err *e);
int image_remove(const char *name, const struct actor *a, struct err *e);
/* Layers that were never finished, at start; those deleted, at any time. */
int image_clean(bool at_start, struct err *e);
