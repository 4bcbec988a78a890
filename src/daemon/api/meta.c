#include <errno.h>

#include "base/banned.h"

#include "api/resources.h"
#include "api/view.h"

/* Can it work: the database answers and the backend is there. */
int handle_health(struct request *r, struct err *e)
{
	_cleanup_tx_ struct tx t = TX_INIT;
	struct backend_pool pool;
	int code = tx_begin(&t, STORE_READ, e);

	if (!code)
		code = workspace_exists(&t, dispatch_config()->workspace, e);
	tx_end(&t);
	if (!code && sandbox_backend()->pool(&pool, e) < 0)
		code = backend_fault(e, EHOSTDOWN, "backend_down");
	if (code < 0)
		return code;
	r->answer = json_pack("{ss}", "status", "ok");
	return 0;
}

int handle_version(struct request *r, struct err *e)
{
	(void)e;
	r->answer = json_pack("{ss ss}", "name", "skerryd", "version", SKERRY_VERSION);
	return 0;
}

int handle_openapi(struct request *r, struct err *e)
{
	r->answer = openapi_document(dispatch_config()->url);
	return r->answer ? 0 : err_set(e, ENOMEM, "out of memory");
}
