#include <errno.h>

#include "base/banned.h"

#include "init/file_job.h"

int file_pack(struct file_job *j, int dir, struct err *e)
{
	(void)j;
	(void)dir;
	return err_set(e, ENOSYS, "pack");
}
