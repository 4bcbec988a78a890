#include "init/send_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "wire/frame.h"

enum { PIPE_SIZE = 2 * FRAME_MAX };

static int scratch[2] = { -1, -1 };

static void scratch_close(void)
{
	close_p(&scratch[0]);
	close_p(&scratch[1]);
}

static bool scratch_open(void)
{
	if (scratch[0] < 0 && pipe2(scratch, O_CLOEXEC | O_NONBLOCK) == 0)
		(void)fcntl(scratch[1], F_SETPIPE_SZ, PIPE_SIZE);
	return scratch[0] >= 0;
}

static size_t move(int sock, size_t len)
{
	size_t sent = 0;

	while (sent < len) {
		ssize_t n = splice(scratch[0], NULL, sock, NULL, len - sent, SPLICE_F_NONBLOCK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		sent += (size_t)n;
	}
	return sent;
}

size_t send_pages(int sock, const void *data, size_t len)
{
	const struct iovec part = { (void *)data, len };
	size_t sent;
	ssize_t n;

	if (!scratch_open())
		return 0;
	n = vmsplice(scratch[1], &part, 1, SPLICE_F_NONBLOCK);
	if (n <= 0)
		return 0;
	sent = move(sock, (size_t)n);
	if (sent < (size_t)n)
		scratch_close(); /* with what the socket did not take */
	return sent;
}
