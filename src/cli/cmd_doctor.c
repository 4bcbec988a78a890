#include "cli.h"
int cmd_doctor(struct cli *c, const struct args *a, struct err *e)
{
	(void)c;
	(void)a;
	return err_set(e, 38, "doctor: not yet");
}
