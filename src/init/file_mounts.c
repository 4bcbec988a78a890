#include "init/file_mounts.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/str.h"

#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif

enum { IDS_MOST = 256, POINT_ONLY = 0x10 };

#define ALL_OF_THEM UINT64_MAX

/* As in linux/mount.h of Linux 6.8. */
struct request {
	uint32_t size, spare;
	uint64_t id;
	uint64_t param; /* listmount: the last one known; statmount: what is asked for */
};

struct answer {
	uint32_t size, spare;
	uint64_t mask;
	uint64_t unused[11];
	uint32_t root, point; /* where they are in `text` */
	uint64_t later[50];
	char text[FILE_PATH_MAX + 1];
};
_Static_assert(offsetof(struct answer, point) == 108 && offsetof(struct answer, text) == 512,
	       "the kernel's");

static const char *mount_point(uint64_t id)
{
	static struct answer answer;
	struct request q = { .size = sizeof(q), .id = id, .param = POINT_ONLY };

	if (syscall(SYS_statmount, &q, &answer, sizeof(answer), 0) < 0 ||
	    !(answer.mask & POINT_ONLY) || answer.point >= sizeof(answer.text))
		return "";
	return answer.text + answer.point;
}

bool file_mount_below(const char *dir, char ret[FILE_PATH_MAX + 1])
{
	struct request q = { .size = sizeof(q), .id = ALL_OF_THEM };
	size_t len = strlen(dir);
	uint64_t ids[IDS_MOST];
	long n;

	while ((n = syscall(SYS_listmount, &q, ids, IDS_MOST, 0)) > 0) {
		for (long i = 0; i < n; i++) {
			const char *point = mount_point(ids[i]);

			if (strncmp(point, dir, len) == 0 && point[len] == '/')
				return str_copy(ret, FILE_PATH_MAX + 1, point);
		}
		q.param = ids[n - 1];
	}
	return false;
}
