#pragma once
/*
 * cmocka with what it needs before it. Included by every unit test, after the system's headers.
 */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
