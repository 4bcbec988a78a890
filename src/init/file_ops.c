#include <errno.h>

#include "base/banned.h"

#include "init/file_job.h"

int file_stat(struct file_job *j, struct err *e)
{
	(void)j;
	return err_set(e, ENOSYS, "stat");
}

int file_make(struct file_job *j, struct err *e)
{
	(void)j;
	return err_set(e, ENOSYS, "make");
}

int file_set(struct file_job *j, struct err *e)
{
	(void)j;
	return err_set(e, ENOSYS, "set");
}

int file_remove(struct file_job *j, struct err *e)
{
	(void)j;
	return err_set(e, ENOSYS, "remove");
}

int file_move(struct file_job *j, struct err *e)
{
	(void)j;
	return err_set(e, ENOSYS, "move");
}
