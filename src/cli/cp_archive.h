#pragma once
/*
 * A directory as a tar, both ways, each in a process of its own: neither function returns. Words for
 * what failed go to `word`, and the process ends with 1.
 *
 * Packing leaves out sockets and devices, and says so. What is unpacked is foreign: no name leads out
 * of the directory, no link in it is followed, there are no devices and no set-uid bits; our mask
 * holds, and all is ours.
 */
enum { ARCHIVE_WORD_SIZE = 1024 };

_Noreturn void archive_pack(const char *directory, int out, int word);
_Noreturn void archive_unpack(const char *directory, int in, int word);
