#include "cp_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#include "out.h"

enum { BLOCK = 64 * 1024, RECORD = 512 };

static _Noreturn void give_up(int word, const char *what, const char *why)
{
	char text[ARCHIVE_WORD_SIZE];

	snprintf(text, sizeof(text), "%s: %s", what, why ? why : "out of memory");
	(void)!write(word, text, strlen(text));
	_exit(1);
}

static void begin(const char *directory, int word)
{
	/* names are bytes, but libarchive wants to know what letters they are */
	setlocale(LC_CTYPE, "C.UTF-8");
	/* the end of the pipe tells */
	signal(SIGPIPE, SIG_IGN);
	if (chdir(directory) < 0)
		give_up(word, directory, strerror(errno));
}

/* -- packing -------------------------------------------------------------------------------------- */

static void pack_bytes(struct archive *tar, const char *data, size_t len, const char *name,
		       int word)
{
	while (len) {
		la_ssize_t n = archive_write_data(tar, data, len);

		if (n <= 0)
			give_up(word, name,
				n < 0 ? archive_error_string(tar) : "it grew meanwhile");
		data += n;
		len -= (size_t)n;
	}
}

/* Holes are written too: the encoder knows where they are, and leaves them out. */
static void pack_hole(struct archive *tar, la_int64_t len, const char *name, int word)
{
	static const char none[BLOCK];

	while (len > 0) {
		size_t n = len < BLOCK ? (size_t)len : BLOCK;

		pack_bytes(tar, none, n, name, word);
		len -= (la_int64_t)n;
	}
}

static void pack_content(struct archive *disk, struct archive *tar, const char *name, int word)
{
	la_int64_t at = 0, offset;
	const void *data;
	size_t len;
	int r;

	while ((r = archive_read_data_block(disk, &data, &len, &offset)) == ARCHIVE_OK) {
		pack_hole(tar, offset - at, name, word);
		pack_bytes(tar, data, len, name, word);
		at = offset + (la_int64_t)len;
	}
	if (r != ARCHIVE_EOF)
		give_up(word, name, archive_error_string(disk));
}

static void pack_one(struct archive *disk, struct archive *tar, struct archive_entry *entry,
		     int word)
{
	mode_t type = archive_entry_filetype(entry);
	const char *name = archive_entry_pathname(entry);

	if (!name)
		give_up(word, "a name", NULL);
	if (type == AE_IFSOCK || type == AE_IFCHR || type == AE_IFBLK) {
		out_note("'%s' is a %s: left out", name, type == AE_IFSOCK ? "socket" : "device");
		return;
	}
	if (archive_write_header(tar, entry) < ARCHIVE_WARN)
		give_up(word, name, archive_error_string(tar));
	if (type == AE_IFREG && !archive_entry_hardlink(entry))
		pack_content(disk, tar, name, word);
}

/* Owners are whoever the sandbox gives it to; of the times only that of the content travels. */
static void strip(struct archive_entry *entry)
{
	archive_entry_set_uid(entry, 0);
	archive_entry_set_gid(entry, 0);
	archive_entry_copy_uname(entry, NULL);
	archive_entry_copy_gname(entry, NULL);
	archive_entry_unset_atime(entry);
	archive_entry_unset_ctime(entry);
	archive_entry_unset_birthtime(entry);
}

_Noreturn void archive_pack(const char *directory, int out, int word)
{
	struct archive *disk = archive_read_disk_new(), *tar = archive_write_new();
	struct archive_entry_linkresolver *links = archive_entry_linkresolver_new();
	struct archive_entry *entry = archive_entry_new(), *spare;
	int r;

	begin(directory, word);
	if (!disk || !tar || !entry || !links)
		give_up(word, "pack", NULL);
	archive_read_disk_set_symlink_physical(disk);
	archive_read_disk_set_behavior(disk, ARCHIVE_READDISK_NO_ACL | ARCHIVE_READDISK_NO_XATTR |
						     ARCHIVE_READDISK_NO_FFLAGS);
	archive_write_set_format_pax(tar); /* times to the nanosecond */
	archive_write_set_bytes_per_block(tar, BLOCK);
	archive_entry_linkresolver_set_strategy(links, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE);
	if (archive_write_open_fd(tar, out) != ARCHIVE_OK)
		give_up(word, "pack", archive_error_string(tar));
	if (archive_read_disk_open(disk, ".") != ARCHIVE_OK)
		give_up(word, directory, archive_error_string(disk));
	while ((r = archive_read_next_header2(disk, entry)) == ARCHIVE_OK) {
		archive_read_disk_descend(disk);
		archive_entry_linkify(links, &entry, &spare);
		strip(entry);
		pack_one(disk, tar, entry, word);
	}
	if (r != ARCHIVE_EOF)
		give_up(word, directory, archive_error_string(disk));
	if (archive_write_close(tar) != ARCHIVE_OK)
		give_up(word, "pack", archive_error_string(tar));
	_exit(0);
}

/* -- unpacking ------------------------------------------------------------------------------------ */

static void unpack_content(struct archive *tar, struct archive *disk, const char *name, int word)
{
	const void *data;
	la_int64_t offset;
	size_t len;
	int r;

	while ((r = archive_read_data_block(tar, &data, &len, &offset)) == ARCHIVE_OK) {
		if (archive_write_data_block(disk, data, len, offset) < ARCHIVE_OK)
			give_up(word, name, archive_error_string(disk));
	}
	if (r != ARCHIVE_EOF)
		give_up(word, name, archive_error_string(tar));
}

static bool wanted(struct archive_entry *entry)
{
	mode_t type = archive_entry_filetype(entry);

	return archive_entry_hardlink(entry) || type == AE_IFREG || type == AE_IFDIR ||
	       type == AE_IFLNK || type == AE_IFIFO;
}

static void unpack_one(struct archive *tar, struct archive *disk, struct archive_entry *entry,
		       int word)
{
	const char *name = archive_entry_pathname(entry);

	if (!name)
		give_up(word, "a name", "no text");
	if (!wanted(entry)) {
		out_note("'%s' is a device: left out", name);
		return;
	}
	archive_entry_set_perm(entry, archive_entry_perm(entry) & 0777);
	if (archive_write_header(disk, entry) < ARCHIVE_OK)
		give_up(word, name, archive_error_string(disk));
	if (archive_entry_size(entry) > 0)
		unpack_content(tar, disk, name, word);
	if (archive_write_finish_entry(disk) < ARCHIVE_OK)
		give_up(word, name, archive_error_string(disk));
}

/* Where the tar comes from, and how many zeros were last of what came. */
struct source {
	int fd;
	size_t zeros;
	char block[BLOCK];
};

static la_ssize_t read_source(struct archive *tar, void *arg, const void **ret)
{
	struct source *s = arg;
	ssize_t n, last;

	do
		n = read(s->fd, s->block, sizeof(s->block));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		archive_set_error(tar, errno, "%s", strerror(errno));
	for (last = n; last > 0 && !s->block[last - 1];)
		last--;
	if (n > 0)
		s->zeros = (last ? 0 : s->zeros) + (size_t)(n - last);
	*ret = s->block;
	return n;
}

/* For libarchive a tar may just stop between two of its entries. Ours end with zeros that belong to
 * none. What follows is read too: whoever writes it must not find the pipe closed. */
static void check_end(struct archive *tar, struct source *s, int word)
{
	la_int64_t past = archive_filter_bytes(tar, 0) - archive_read_header_position(tar);
	const void *rest;

	while (read_source(tar, s, &rest) > 0)
		;
	if (past <= 0 || s->zeros < RECORD)
		give_up(word, "unpack", "the archive has no end");
}

_Noreturn void archive_unpack(const char *directory, int in, int word)
{
	static const int flags = ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
				 ARCHIVE_EXTRACT_SECURE_NODOTDOT |
				 ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS;
	struct archive *tar = archive_read_new(), *disk = archive_write_disk_new();
	struct source source = { .fd = in };
	struct archive_entry *entry;
	int r;

	begin(directory, word);
	if (!tar || !disk)
		give_up(word, "unpack", NULL);
	archive_read_support_format_tar(tar);
	archive_write_disk_set_options(disk, flags);
	if (archive_read_open(tar, &source, NULL, read_source, NULL) != ARCHIVE_OK)
		give_up(word, "unpack", archive_error_string(tar));
	while ((r = archive_read_next_header(tar, &entry)) == ARCHIVE_OK)
		unpack_one(tar, disk, entry, word);
	if (r != ARCHIVE_EOF)
		give_up(word, "unpack", archive_error_string(tar));
	check_end(tar, &source, word);
	if (archive_write_close(disk) < ARCHIVE_OK)
		give_up(word, "unpack", archive_error_string(disk));
	_exit(0);
}
