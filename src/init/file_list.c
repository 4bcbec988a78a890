#include <errno.h>

#include "base/banned.h"

#include "init/file_job.h"

int file_list(struct file_job *j, struct err *e)
{
	(void)j;
	return err_set(e, ENOSYS, "list");
}
