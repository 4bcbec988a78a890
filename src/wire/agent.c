#include "wire/agent.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/cleanup.h"
#include "wire/bytes.h"

enum { NAME_LIMIT = 255, PATH_LIMIT = 4095, TEXT_LIMIT = 1023 };

void agent_run_release(struct agent_run *run)
{
	free(run->argv);
	free(run->env);
	*run = (struct agent_run){ 0 };
}

static int got(const struct dec *d)
{
	return dec_done(d) ? 0 : -EPROTO;
}

void agent_put_hello(struct buf *out, uint64_t features)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u32(&body, AGENT_VERSION);
	enc_u32(&body, AGENT_OLDEST);
	enc_u64(&body, features);
	frame_put_body(out, AGENT_HELLO, &body);
}

int agent_get_hello(const struct message *m, struct agent_hello *ret)
{
	struct agent_hello h;
	struct dec d;

	dec_init(&d, m->data, m->len);
	h.version = dec_u32(&d);
	h.oldest = dec_u32(&d);
	h.features = dec_u64(&d);
	/* a newer peer may say more in its HELLO: what follows is not read */
	if (m->type != AGENT_HELLO || d.bad || h.oldest > h.version)
		return -EPROTO;
	*ret = h;
	return 0;
}

int agent_hello_check(const struct agent_hello *h)
{
	return h->version < AGENT_OLDEST || h->oldest > AGENT_VERSION ? -EPROTONOSUPPORT : 0;
}

/* Columns or rows of a terminal. */
static uint16_t dec_size(struct dec *d)
{
	uint32_t n = dec_u32(d);

	if (n < 1 || n > AGENT_TERMINAL_MAX)
		d->bad = true;
	return d->bad ? 0 : (uint16_t)n;
}

void agent_put_run(struct buf *out, const struct agent_run *run)
{
	struct buf body = BUF_INIT(AGENT_MESSAGE_MAX);

	enc_str(&body, run->id);
	enc_u8(&body, run->runtime);
	enc_u32(&body, run->flags);
	enc_u64(&body, run->timeout_ms);
	enc_u64(&body, run->keep);
	enc_str(&body, run->cwd);
	enc_str(&body, run->default_cwd);
	enc_str(&body, run->user);
	enc_str(&body, run->default_user);
	enc_strv(&body, (const char *const *)run->argv);
	enc_strv(&body, (const char *const *)run->env);
	if (run->flags & RUN_TERMINAL) {
		enc_u32(&body, run->cols);
		enc_u32(&body, run->rows);
	}
	frame_put_body(out, AGENT_RUN, &body);
}

int agent_get_run(const struct message *m, struct agent_run *ret)
{
	struct agent_run run = { 0 };
	struct dec d;

	dec_init(&d, m->data, m->len);
	run.id = dec_str(&d, ID_LEN);
	run.runtime = dec_u8(&d);
	run.flags = dec_u32(&d);
	run.timeout_ms = dec_u64(&d);
	run.keep = dec_u64(&d);
	run.cwd = dec_str(&d, PATH_LIMIT);
	run.default_cwd = dec_str(&d, PATH_LIMIT);
	run.user = dec_str(&d, NAME_LIMIT);
	run.default_user = dec_str(&d, NAME_LIMIT);
	run.argv = dec_strv(&d, AGENT_ARGS_MAX, AGENT_STRING_MAX);
	run.env = dec_strv(&d, AGENT_ENV_MAX, AGENT_STRING_MAX);
	if (run.flags & RUN_TERMINAL) {
		run.cols = dec_size(&d);
		run.rows = dec_size(&d);
	}
	if (!dec_done(&d) || !id_valid(run.id, NULL) || run.runtime > RUNTIME_SHELL ||
	    !run.argv[0] || (run.runtime != RUNTIME_ARGS && run.argv[1])) {
		agent_run_release(&run);
		return d.no_memory ? -ENOMEM : -EPROTO;
	}
	*ret = run;
	return 0;
}

void agent_put_attach(struct buf *out, const struct agent_attach *a)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_str(&body, a->id);
	enc_u64(&body, a->offset[0]);
	enc_u64(&body, a->offset[1]);
	frame_put_body(out, AGENT_ATTACH, &body);
}

int agent_get_attach(const struct message *m, struct agent_attach *ret)
{
	struct agent_attach a;
	struct dec d;

	dec_init(&d, m->data, m->len);
	a.id = dec_str(&d, ID_LEN);
	a.offset[0] = dec_u64(&d);
	a.offset[1] = dec_u64(&d);
	if (!dec_done(&d) || !id_valid(a.id, NULL))
		return -EPROTO;
	*ret = a;
	return 0;
}

void agent_put_signal(struct buf *out, uint8_t type, const struct agent_signal *s)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_str(&body, s->id);
	enc_u32(&body, s->signal);
	enc_u32(&body, s->grace_ms);
	frame_put_body(out, type, &body);
}

int agent_get_signal(const struct message *m, struct agent_signal *ret)
{
	struct agent_signal s;
	struct dec d;

	dec_init(&d, m->data, m->len);
	s.id = dec_str(&d, ID_LEN);
	s.signal = dec_u32(&d);
	s.grace_ms = dec_u32(&d);
	if (!dec_done(&d) || !id_valid(s.id, NULL) || s.signal == 0 || s.signal > 64)
		return -EPROTO;
	*ret = s;
	return 0;
}

void agent_put_resize(struct buf *out, const struct agent_resize *r)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_str(&body, r->id);
	enc_u32(&body, r->cols);
	enc_u32(&body, r->rows);
	frame_put_body(out, AGENT_RESIZE, &body);
}

int agent_get_resize(const struct message *m, struct agent_resize *ret)
{
	struct agent_resize r;
	struct dec d;

	dec_init(&d, m->data, m->len);
	r.id = dec_str(&d, ID_LEN);
	r.cols = dec_size(&d);
	r.rows = dec_size(&d);
	if (!dec_done(&d) || !id_valid(r.id, NULL))
		return -EPROTO;
	*ret = r;
	return 0;
}

void agent_put_ack(struct buf *out, const struct agent_ack *a)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u64(&body, a->offset[0]);
	enc_u64(&body, a->offset[1]);
	frame_put_body(out, AGENT_ACK, &body);
}

int agent_get_ack(const struct message *m, struct agent_ack *ret)
{
	struct agent_ack a;
	struct dec d;

	dec_init(&d, m->data, m->len);
	a.offset[0] = dec_u64(&d);
	a.offset[1] = dec_u64(&d);
	if (got(&d) < 0)
		return -EPROTO;
	*ret = a;
	return 0;
}

void agent_put_stop(struct buf *out, uint32_t grace_ms)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u32(&body, grace_ms);
	frame_put_body(out, AGENT_STOP, &body);
}

int agent_get_stop(const struct message *m, uint32_t *ret_grace_ms)
{
	struct dec d;
	uint32_t grace_ms;

	dec_init(&d, m->data, m->len);
	grace_ms = dec_u32(&d);
	if (got(&d) < 0)
		return -EPROTO;
	*ret_grace_ms = grace_ms;
	return 0;
}

void agent_put_id(struct buf *out, uint8_t type, const char *id)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_str(&body, id);
	frame_put_body(out, type, &body);
}

int agent_get_id(const struct message *m, const char **ret_id)
{
	const char *id;
	struct dec d;

	dec_init(&d, m->data, m->len);
	id = dec_str(&d, ID_LEN);
	if (!dec_done(&d) || !id_valid(id, NULL))
		return -EPROTO;
	*ret_id = id;
	return 0;
}

void agent_put_empty(struct buf *out, uint8_t type)
{
	frame_put(out, type, "", 0);
}

void agent_put_started(struct buf *out, const struct agent_started *s)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u32(&body, s->pid);
	enc_u64(&body, s->age_us);
	enc_str(&body, s->cwd);
	enc_str(&body, s->user);
	enc_str(&body, s->warning);
	frame_put_body(out, AGENT_STARTED, &body);
}

int agent_get_started(const struct message *m, struct agent_started *ret)
{
	struct agent_started s;
	struct dec d;

	dec_init(&d, m->data, m->len);
	s.pid = dec_u32(&d);
	s.age_us = dec_u64(&d);
	s.cwd = dec_str(&d, PATH_LIMIT);
	s.user = dec_str(&d, NAME_LIMIT);
	s.warning = dec_str(&d, TEXT_LIMIT);
	if (got(&d) < 0)
		return -EPROTO;
	*ret = s;
	return 0;
}

void agent_output_head(const struct agent_output *o, unsigned char ret[AGENT_OUTPUT_HEAD])
{
	uint64_t offset = htole64(o->offset);

	frame_head(AGENT_OUTPUT, AGENT_OUTPUT_HEAD - FRAME_HEAD + o->len, ret);
	ret[FRAME_HEAD] = o->stream;
	memcpy(ret + FRAME_HEAD + 1, &offset, sizeof(offset));
}

void agent_put_output(struct buf *out, const struct agent_output *o)
{
	unsigned char head[AGENT_OUTPUT_HEAD];

	/* one copy less than the other messages: this is the one that is large */
	if (o->len > AGENT_OUTPUT_DATA) {
		out->failed = out->failed ? out->failed : -EMSGSIZE;
		return;
	}
	agent_output_head(o, head);
	buf_add(out, head, sizeof(head));
	buf_add(out, o->data, o->len);
}

int agent_get_output(const struct message *m, struct agent_output *ret)
{
	struct agent_output o;
	struct dec d;

	dec_init(&d, m->data, m->len);
	o.stream = dec_u8(&d);
	o.offset = dec_u64(&d);
	o.data = dec_rest(&d, &o.len);
	if (d.bad || o.stream < 1 || o.stream > 2 || o.offset > UINT64_MAX - o.len)
		return -EPROTO;
	*ret = o;
	return 0;
}

void agent_put_stdin_ack(struct buf *out, uint64_t taken)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u64(&body, taken);
	frame_put_body(out, AGENT_STDIN_ACK, &body);
}

int agent_get_stdin_ack(const struct message *m, uint64_t acked, uint64_t sent, uint64_t *ret_taken)
{
	struct dec d;
	uint64_t taken;

	dec_init(&d, m->data, m->len);
	taken = dec_u64(&d);
	if (!dec_done(&d) || taken < acked || taken > sent)
		return -EPROTO;
	*ret_taken = taken;
	return 0;
}

static void enc_exit(struct buf *b, const struct agent_exit *x)
{
	enc_u8(b, x->reason);
	enc_u32(b, x->code);
	enc_u32(b, x->signal);
	enc_u64(b, x->duration_us);
	for (int i = 0; i < 2; i++) {
		enc_u64(b, x->total[i]);
		enc_u64(b, x->dropped[i]);
	}
	enc_u8(b, x->oom);
}

static void dec_exit(struct dec *d, struct agent_exit *x)
{
	x->reason = dec_u8(d);
	x->code = dec_u32(d);
	x->signal = dec_u32(d);
	x->duration_us = dec_u64(d);
	for (int i = 0; i < 2; i++) {
		x->total[i] = dec_u64(d);
		x->dropped[i] = dec_u64(d);
	}
	x->oom = dec_u8(d);
}

static bool counts_plausible(const struct agent_exit *x)
{
	return x->dropped[0] <= x->total[0] && x->dropped[1] <= x->total[1] && x->oom <= 1;
}

static bool exit_plausible(const struct agent_exit *x)
{
	return x->reason >= REASON_EXITED && x->reason < REASON_LOST && x->code <= 255 &&
	       x->signal <= 64 && counts_plausible(x);
}

void agent_put_exit(struct buf *out, const struct agent_exit *x)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_exit(&body, x);
	frame_put_body(out, AGENT_EXIT, &body);
}

int agent_get_exit(const struct message *m, struct agent_exit *ret)
{
	struct agent_exit x;
	struct dec d;

	dec_init(&d, m->data, m->len);
	dec_exit(&d, &x);
	if (!dec_done(&d) || !exit_plausible(&x))
		return -EPROTO;
	*ret = x;
	return 0;
}

void agent_put_fail(struct buf *out, const struct agent_fail *f)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_u32(&body, f->code);
	enc_str(&body, f->reason);
	enc_str(&body, f->field);
	enc_str(&body, f->text);
	frame_put_body(out, AGENT_FAIL, &body);
}

int agent_get_fail(const struct message *m, struct agent_fail *ret)
{
	struct agent_fail f;
	struct dec d;

	dec_init(&d, m->data, m->len);
	f.code = dec_u32(&d);
	f.reason = dec_str(&d, NAME_LIMIT);
	f.field = dec_str(&d, NAME_LIMIT);
	f.text = dec_str(&d, TEXT_LIMIT);
	if (!dec_done(&d) || f.code == 0 || f.code > 4095)
		return -EPROTO;
	*ret = f;
	return 0;
}

void agent_put_command(struct buf *out, const struct agent_command *c)
{
	struct buf body = BUF_INIT(FRAME_MAX);

	enc_str(&body, c->id);
	enc_u32(&body, c->pid);
	enc_u8(&body, c->ended);
	enc_u8(&body, c->left);
	enc_exit(&body, &c->exit);
	frame_put_body(out, AGENT_COMMAND, &body);
}

int agent_get_command(const struct message *m, struct agent_command *ret)
{
	struct agent_command c;
	struct dec d;

	dec_init(&d, m->data, m->len);
	c.id = dec_str(&d, ID_LEN);
	c.pid = dec_u32(&d);
	c.ended = dec_u8(&d);
	c.left = dec_u8(&d);
	dec_exit(&d, &c.exit);
	if (!dec_done(&d) || !id_valid(c.id, NULL) || c.ended > 1 || c.left > 1 ||
	    !counts_plausible(&c.exit) || (c.ended && !exit_plausible(&c.exit)))
		return -EPROTO;
	*ret = c;
	return 0;
}
