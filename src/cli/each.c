#include "each.h"

#include "base/str.h"

#include "out.h"

int each_arg(struct cli *c, const struct args *a,
	     int (*one)(struct cli *c, const struct args *a, const char *arg, struct err *e),
	     struct err *e)
{
	int result = 0;

	for (int i = 0; i < a->n_pos; i++) {
		int r = one(c, a, a->pos[i], e);

		if (r < 0 && (a->n_pos == 1 || str_eq(e->reason, REASON_CONNECTION)))
			return r;
		if (r < 0) {
			out_error(c->json, e);
			result = EXIT_FAILED;
		}
	}
	return result;
}
