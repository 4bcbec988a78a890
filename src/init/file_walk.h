#pragma once
/* What walks over trees have in common. */
#include <stdbool.h>

/* `fd` lies in a file system that the kernel makes up: there is no content in it. */
bool file_of_kernel(int fd);
