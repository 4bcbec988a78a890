#pragma once
/*
 * What requests and connections of their own have in common: libcurl, where the API is, and what
 * libcurl's failures mean. For http.c and dial.c only.
 */
#include <curl/curl.h>

#include "client.h"

struct http {
	struct client base;
	CURLM *multi;
	char *url;    /* as the user gave it, for messages */
	char *prefix; /* what paths are put behind */
	char *socket; /* of a unix:// URL, or NULL */
	char *auth;   /* the header line, or NULL */
	bool local;
};

/* How to get there: protocols, socket, proxy. */
void http_reach(const struct http *h, CURL *easy);
/* Drives the transfers of `multi`; -EINTR when the cancel descriptor became readable. */
int http_drive(struct http *h, CURLM *multi, CURLcode *ret);
/* Tells a failure of the connection; 0 for CURLE_OK. */
int http_tell(const struct http *h, CURLcode code, struct err *e);
/* Copies the value of a header line when it is that of `name` ("content-type:"). */
void http_header(const char *line, size_t len, const char *name, char *out, size_t size);

int http_dial(struct client *base, struct line **ret, struct err *e);
