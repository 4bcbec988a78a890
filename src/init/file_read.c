#include <errno.h>

#include "base/banned.h"

#include "init/file_job.h"

int file_read(struct file_job *j, struct err *e)
{
	(void)j;
	return err_set(e, ENOSYS, "read");
}
