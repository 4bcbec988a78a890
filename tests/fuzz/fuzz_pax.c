/*
 * The records of a PAX header: the parser changes its text in place.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "init/untar_pax.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tar_pax pax = { 0 };
	struct tar_map map = { 0 };
	struct err e = ERR_INIT;
	char *text = malloc(size ? size : 1); /* its own piece of memory: one byte too far shows */

	if (!text)
		return 0;
	if (size)
		memcpy(text, data, size);
	if (tar_pax_parse(&pax, text, size, &map, &e) == 0) {
		if (pax.have & PAX_PATH)
			fuzz_touch(pax.path, strlen(pax.path) + 1);
		if (pax.have & PAX_LINK)
			fuzz_touch(pax.link, strlen(pax.link) + 1);
		if (pax.have & PAX_SPARSE_NAME)
			fuzz_touch(pax.sparse_name, strlen(pax.sparse_name) + 1);
		assert(pax.mtime.ns < 1000000000 && pax.xattrs_count <= TAR_XATTRS_MAX);
		for (size_t i = 0; i < pax.xattrs_count; i++) {
			fuzz_touch(pax.xattrs[i].name, strlen(pax.xattrs[i].name) + 1);
			fuzz_touch(pax.xattrs[i].value, pax.xattrs[i].len);
		}
		if (tar_map_check(&map, 10, 100) == 0)
			assert(map.count > 0);
	} else {
		assert(e.code && e.text[0]);
	}
	tar_map_release(&map);
	free(text);
	return 0;
}
