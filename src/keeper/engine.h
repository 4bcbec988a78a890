#pragma once
/*
 * What an image has below /var/lib/docker and /var/lib/containerd. A sandbox's own `engine` lies over
 * those two directories, so the content is copied out of the layer when that is complete, and each
 * disk made from the layer begins with it.
 *
 * Only a directory counts, reached without following a link: where an archive has a link or another
 * object in one of the two places, or above it, nothing is taken. The copies share their extents
 * with what they were made of. Workers call this; `layer`, `from` and `to` are directory descriptors
 * of subvolumes that no sandbox can write.
 */
#include "base/err.h"

/* 1 where at least one of the layer's two directories has an entry, else 0. */
int engine_brings(int layer, struct err *e);

/* Fills the empty subvolume `to` with the layer's two directories. */
int engine_take(int layer, int to, struct err *e);

/* Makes what every engine has and `to` lacks. */
int engine_tree(int to, struct err *e);

/* Fills the empty subvolume `to` with all of `from`. */
int engine_copy(int from, int to, struct err *e);
