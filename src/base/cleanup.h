#pragma once
/*
 * Ownership by scope.
 *
 * A variable marked `_cleanup_close_` or `_cleanup_free_` owns what it holds until the end of its
 * scope; `take_fd` and `take_ptr` hand the thing on and leave the variable empty. Every destructor
 * named here accepts the empty value (-1, NULL).
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/banned.h"

/* unused: its end may be all that such a variable is for */
#define _cleanup_(f)     __attribute__((cleanup(f), unused))
#define _cleanup_close_  _cleanup_(close_p)
#define _cleanup_free_   _cleanup_(free_p)
#define _cleanup_fclose_ _cleanup_(fclose_p)
#define _cleanup_dir_    _cleanup_(closedir_p)

static inline void close_p(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static inline void free_p(void *p)
{
	free(*(void **)p);
	*(void **)p = NULL;
}

static inline void fclose_p(FILE **f)
{
	if (*f)
		fclose(*f);
	*f = NULL;
}

static inline void closedir_p(DIR **d)
{
	if (*d)
		closedir(*d);
	*d = NULL;
}

/* Hands the descriptor on; `*fd` is -1 afterwards. */
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* Hands the pointer on; `p` is NULL afterwards. */
#define take_ptr(p)                                                                                \
	({                                                                                         \
		__typeof__(p) taken_ = (p);                                                        \
		(p) = NULL;                                                                        \
		taken_;                                                                            \
	})

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
