#pragma once
/*
 * Functions this project does not use, because each has a form that cannot overflow, cannot be
 * steered by the environment or tells its error. Using one is a compile error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BANNED(what) use_of_##what##_is_banned

#undef strcpy
#define strcpy(d, s) BANNED(strcpy)
#undef strcat
#define strcat(d, s) BANNED(strcat)
#undef strncpy
#define strncpy(d, s, n) BANNED(strncpy)
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef atoi
#define atoi(s) BANNED(atoi)
#undef atol
#define atol(s) BANNED(atol)
#undef strtok
#define strtok(s, d) BANNED(strtok)
#undef system
#define system(c) BANNED(system)
#undef popen
#define popen(c, m) BANNED(popen)
#undef gets
#define gets(s) BANNED(gets)
#undef alloca
#define alloca(n) BANNED(alloca)
