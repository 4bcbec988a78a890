#pragma once
/*
 * What `skerry doctor` finds: a list of checks, each with a verdict and what to do.
 */
#include <jansson.h>

enum verdict { CHECK_OK, CHECK_WARN, CHECK_FAIL };

struct findings {
	json_t *checks; /* [{name, status, text, hint}] */
	int failed;     /* how many CHECK_FAIL */
};

/* `hint` may be NULL; it is left out of a good verdict. */
void finding(struct findings *f, enum verdict v, const char *name, const char *hint,
	     const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* What this machine offers to skerryd and skerry-keeper. Changes nothing, needs no privilege. */
void doctor_host(struct findings *f);
/* Chains of others that drop what sandboxes send; `nft`: the program. Root sees them. */
void doctor_firewall(struct findings *f, const char *nft);
