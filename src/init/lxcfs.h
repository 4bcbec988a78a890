#pragma once
/*
 * Files of /proc that lxcfs tells: when it has died they answer nothing, and those of the kernel, which
 * lie below, are better.
 */

/* Before the first foreign instruction: what is found then is the host's. */
void lxcfs_init(void);
/* Looks now and then; does not wait. */
void lxcfs_check(void);
