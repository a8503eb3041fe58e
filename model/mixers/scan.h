// The family of mixers with a memory of linear writes, one token after another:
//
//     s_i <- decay_i s_i + c k_i h        o = Σ q_i s_i
//
// for every slot i, with decay 1, mu or alpha_i. A rule says what h [d] and c are; they may read p = Σ k_i s_i of the memory before the token, or of the
// memory at the start of the token's chunk. The forward keeps the memory every SCAN_GROUP tokens (but the start); the backward recomputes a group's from it
// and walks back. Rules of a certain kind go by matrix products as well (scan_chunk.h): the backward, and the forward of more tokens than one unless heads
// are 64 × 64; of a chunked rule, the backward of chunks that suit.
//
// A mixer's file states its rule and ends with SCAN_MIXER, which instantiates the passes below for it (so that the rule is constant in them) and makes the
// mixer's row; scan.c shares sequences and heads out to threads.
#ifndef MODEL_MIXERS_SCAN_H
#define MODEL_MIXERS_SCAN_H

#include "model/mixers/documents.h"
#include "model/mixers/mixer.h"
#include "model/mixers/slots.h"

#define SCAN_GROUP KEPT_TOKENS
#define SCAN_LEAST 8    // the shortest chunk of a chunked rule that goes by products: a divisor of SCAN_GROUP
#define SCAN_AHEAD 16   // tokens from what is prefetched to what is read, one token after another

typedef enum ScanDecay {
    SCAN_KEEP,    // 1
    SCAN_HEAD,    // mu, one number a head; 1 where mu is NULL
    SCAN_SLOTS,   // alpha, one number a slot
} ScanDecay;

// One token of one head.
typedef struct ScanToken {
    const float *q, *k, *v;
    float g, mu;                         // 1 where there is none
    const float *alpha;
    const float *ln_weight, *ln_bias;    // the head's
} ScanToken;

// Where a token's gradients go. Rows q, k and v are set by the passes before the rule adds its part; the norm's are sums.
typedef struct ScanGradients {
    float *q, *k, *v;
    float g, mu;
    float *ln_weight, *ln_bias;
} ScanGradients;

typedef struct ScanRule {
    ScanDecay decay;
    bool reads;      // h or c depends on p
    bool chunked;    // with chunks above 1, p is read from the memory at the chunk's start
    bool products;   // chunks of matrix products (scan_chunk.h) serve it: its write is as said there, or chunked and with c = g
    // h [d]; returns c. NULL: h = v, c = g.
    float (*write)(float *h, const float *p, const ScanToken *token, size_t d);
    // From dh [d] and dc: dp [d] is set; adds to v's row (set to dh before) and what else the rule reads. NULL as write.
    void (*write_backward)(float *dp, ScanGradients *grad, const float *dh, float dc, const float *p, const ScanToken *token, size_t d);
    // Turns y = S q in o [d] into the output; NULL: that is the output.
    void (*output)(float *o, const ScanToken *token, size_t d);
    // dy [d] from do_ [d]; adds to q's row and the norm.
    void (*output_backward)(float *dy, ScanGradients *grad, const float *do_, const float *y, const ScanToken *token, size_t d);
} ScanRule;

// One head of one sequence.
typedef struct ScanHead {
    const float *q, *k, *v, *g, *mu, *alpha;   // first token's row, or NULL
    const float *ln_weight, *ln_bias;
    size_t row, gate_row, alpha_row;           // strides from token to token
    size_t position, length, chunk;
    size_t m, d;
} ScanHead;

typedef struct ScanTask {
    float *o;             // first token's row
    size_t o_row;
    float *kept;          // [groups − 1][1 or 2][m, d] memory (and chunk's start) before each group but the first, or NULL
    float *s, *base;      // [m, d] memory, and the chunk's start where the rule is chunked
    float *scratch;       // scan_chunk_floats, where the rule has products
} ScanTask;

typedef struct ScanBackwardTask {
    const float *kept, *do_;
    const float *start;   // [m, d] memory before the first token; NULL: zeros
    size_t do_row;
    float *ds, *dbase;    // [m, d] gradients into the memory after the token at hand (at the end given), and into the chunk's start (zero at the end)
    float *scratch;       // scan_chunk_floats, where the rule has products; else:
    float *states;        // [SCAN_GROUP][m, d] before each token of the group
    float *hs, *ps;       // [SCAN_GROUP][d]
    float *cs;            // [SCAN_GROUP]
    float *q, *k, *v, *g, *mu, *alpha;   // gradients, first token's row
    float *ln_weight, *ln_bias;          // sums of this head and sequence
} ScanBackwardTask;

// The passes of one rule over one head.
typedef void (*ScanForwardHead)(const ScanTask *task, const ScanHead *head);
typedef void (*ScanBackwardHead)(const ScanBackwardTask *task, const ScanHead *head);

// The mixer's functions for a rule. state: [H][m, d], and after all heads' as much again for the chunk's start where a chunked rule has chunks above 1.
size_t ISA_NAME(scan_saved_floats)(const MixerShape *shape, const ScanRule *rule);
size_t ISA_NAME(scan_scratch_floats)(const MixerShape *shape, bool backward, const ScanRule *rule);
size_t ISA_NAME(scan_state_floats)(const ModelConfig *config, const ScanRule *rule);
// Copies state0, or zeros where it is NULL, into the memory; the forward of a chunk's first token sets the chunk's start.
void ISA_NAME(scan_state_init)(float *state, const float *state0, const MixerShape *shape);
void ISA_NAME(scan_forward)(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape,
                            const ScanRule *rule, ScanForwardHead forward_head);
void ISA_NAME(scan_backward)(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved, float *scratch,
                             const MixerTensors *in, const MixerShape *shape, const ScanRule *rule, ScanBackwardHead backward_head);

// By chunks of matrix products (scan_chunk.h), and the scratch that either needs for a head: where the rule has products.
size_t ISA_NAME(scan_chunk_floats)(size_t m, size_t d, bool backward, const ScanRule *rule);
void ISA_NAME(scan_chunk_forward)(const ScanTask *task, const ScanHead *head, const ScanRule *rule);
void ISA_NAME(scan_chunk_backward)(const ScanBackwardTask *task, const ScanHead *head, const ScanRule *rule);

INLINE ScanToken scan_token(const ScanHead *head, size_t t)
{
    return (ScanToken){
        .q = head->q + t * head->row,
        .k = head->k + t * head->row,
        .v = head->v + t * head->row,
        .g = head->g != NULL ? head->g[t * head->gate_row] : 1.0f,
        .mu = head->mu != NULL ? head->mu[t * head->gate_row] : 1.0f,
        .alpha = head->alpha != NULL ? head->alpha + t * head->alpha_row : NULL,
        .ln_weight = head->ln_weight,
        .ln_bias = head->ln_bias,
    };
}

// What token t of the head reads, if there is one.
INLINE void scan_prefetch(const ScanHead *head, size_t t)
{
    if (t >= head->length) {
        return;
    }
    prefetch_rows(head->q + t * head->row, head->row, head->m, 1);
    prefetch_rows(head->k + t * head->row, head->row, head->m, 1);
    prefetch_rows(head->v + t * head->row, head->row, head->d, 1);
    if (head->alpha != NULL) {
        prefetch_rows(head->alpha + t * head->alpha_row, head->alpha_row, head->m, 1);
    }
}

INLINE vfloat scan_decayed(vfloat s, const ScanToken *token, size_t i, ScanDecay decay)
{
    return decay == SCAN_KEEP ? s : v_set(decay == SCAN_SLOTS ? token->alpha[i] : token->mu) * s;
}

// to_i = decay_i s_i + w_i h; then o = Σ q_i to_i (o not NULL) and p = Σ k_next_i to_i (k_next not NULL). to [m, d] may be s.
INLINE void scan_update(float *to, float *o, float *p, const float *s, const float *w, const float *h, const float *k_next, const ScanToken *token,
                        ScanDecay decay, size_t m, size_t d)
{
    for (size_t j0 = 0; j0 < d; j0 += COLUMNS * VECTOR_FLOATS) {
        vfloat hs[COLUMNS], os[COLUMNS] = {{0}}, ps[COLUMNS] = {{0}};
        for (size_t c = 0; c < COLUMNS; c++) {
            size_t j = j0 + c * VECTOR_FLOATS;
            hs[c] = v_load_n(h + j, rest_of(d, j));
        }
        for (size_t i = 0; i < m; i++) {
            for (size_t c = 0; c < COLUMNS; c++) {
                size_t j = j0 + c * VECTOR_FLOATS;
                vfloat slot = v_fma(v_set(w[i]), hs[c], scan_decayed(v_load_n(s + i * d + j, rest_of(d, j)), token, i, decay));
                v_store_n(to + i * d + j, slot, rest_of(d, j));
                if (o != NULL) {
                    os[c] = v_fma(v_set(token->q[i]), slot, os[c]);
                }
                if (k_next != NULL) {
                    ps[c] = v_fma(v_set(k_next[i]), slot, ps[c]);
                }
            }
        }
        for (size_t c = 0; c < COLUMNS; c++) {
            size_t j = j0 + c * VECTOR_FLOATS;
            if (o != NULL) {
                v_store_n(o + j, os[c], rest_of(d, j));
            }
            if (k_next != NULL) {
                v_store_n(p + j, ps[c], rest_of(d, j));
            }
        }
    }
}

// h [d] (or v itself, where nothing is written to h) and w [m] of a token; returns c.
INLINE float scan_plan(const float **h, float *own_h, float *w, const float *p, const ScanToken *token, const ScanRule *rule, size_t m, size_t d)
{
    float c = token->g;
    *h = token->v;
    if (rule->write != NULL) {
        c = rule->write(own_h, p, token, d);
        *h = own_h;
    }
    scale_to(w, token->k, c, m);
    return c;
}

// Where the rule reads from another memory than the one before the token.
INLINE bool scan_lags(const ScanHead *head, const ScanRule *rule) { return rule->chunked && head->chunk > 1; }

INLINE void scan_forward_sized(const ScanTask *task, const ScanHead *head, const ScanRule *rule, size_t m, size_t d)
{
    float own_h[d], p[d], w[m];
    const float *h;
    float *s = task->s;
    bool lags = scan_lags(head, rule), have_product = false;
    for (size_t t = 0; t < head->length; t++) {
        ScanToken token = scan_token(head, t);
        scan_prefetch(head, t + SCAN_AHEAD);
        if (lags && (head->position + t) % head->chunk == 0) {
            memcpy(task->base, s, m * d * sizeof(float));
        }
        if (task->kept != NULL && t > 0 && t % SCAN_GROUP == 0) {
            float *kept = task->kept + (t / SCAN_GROUP - 1) * (rule->chunked ? 2 : 1) * m * d;
            memcpy(kept, s, m * d * sizeof(float));
            if (lags) {
                memcpy(kept + m * d, task->base, m * d * sizeof(float));
            }
        }
        if (rule->reads && !have_product) {
            slot_sum(p, lags ? task->base : s, token.k, m, d);
        }
        scan_plan(&h, own_h, w, p, &token, rule, m, d);
        float *o = task->o + t * task->o_row;
        have_product = rule->reads && !lags && t + 1 < head->length;
        if (have_product) {
            scan_update(s, o, p, s, w, h, token.k + head->row, &token, rule->decay, m, d);
        } else {
            scan_update(s, o, NULL, s, w, h, NULL, &token, rule->decay, m, d);
        }
        if (rule->output != NULL) {
            rule->output(o, &token, d);
        }
    }
}

// The memory before each of `count` tokens from `first` on, from that before the first, with what each token writes. With a chunked rule that lags, `base`
// is the start of a chunk that began before the group.
INLINE void scan_recompute(const ScanBackwardTask *task, const float *base, const ScanHead *head, const ScanRule *rule, size_t first, size_t count, size_t m,
                           size_t d)
{
    float w[m];
    bool lags = scan_lags(head, rule);
    for (size_t l = 0; l < count; l++) {
        ScanToken token = scan_token(head, first + l);
        float *s = task->states + l * m * d, *p = task->ps + l * d;
        const float *h;
        if (lags && (first + l) % head->chunk == 0) {
            base = s;
        }
        if (rule->reads && (lags || l == 0)) {
            slot_sum(p, lags ? base : s, token.k, m, d);
        }
        task->cs[l] = scan_plan(&h, task->hs + l * d, w, p, &token, rule, m, d);
        if (l + 1 < count && rule->reads && !lags) {
            scan_update(s + m * d, NULL, p + d, s, w, h, token.k + head->row, &token, rule->decay, m, d);
        } else if (l + 1 < count) {
            scan_update(s + m * d, NULL, NULL, s, w, h, NULL, &token, rule->decay, m, d);
        }
    }
}

// With ds'_i = ds_i + q_i dy: ds_i <- decay_i ds'_i, dh [d] = Σ w_i ds'_i, and the dots [m] s_dy_i = s_i·dy, h_ds_i = h·ds'_i, s_ds_i = s_i·ds'_i
// (the last only where there is a decay).
INLINE void scan_walk_back(float *ds, float *dh, float *s_dy, float *h_ds, float *s_ds, const float *s, const float *dy, const float *h, const float *w,
                           const ScanToken *token, ScanDecay decay, size_t m, size_t d)
{
    for (size_t j0 = 0; j0 < d; j0 += COLUMNS * VECTOR_FLOATS) {
        vfloat sum[COLUMNS] = {{0}};
        for (size_t i0 = 0; i0 < m; i0 += VECTOR_FLOATS) {
            vfloat x[VECTOR_FLOATS], y[VECTOR_FLOATS], z[VECTOR_FLOATS];
            for (size_t l = 0; l < VECTOR_FLOATS; l++) {
                x[l] = y[l] = z[l] = (vfloat){0};
                size_t i = i0 + l;
                for (size_t c = 0; c < COLUMNS && i < m; c++) {
                    size_t j = j0 + c * VECTOR_FLOATS, rest = rest_of(d, j);
                    vfloat slot = v_load_n(s + i * d + j, rest), out = v_load_n(dy + j, rest);
                    vfloat dslot = v_fma(v_set(token->q[i]), out, v_load_n(ds + i * d + j, rest));
                    x[l] = v_fma(slot, out, x[l]);
                    y[l] = v_fma(v_load_n(h + j, rest), dslot, y[l]);
                    if (decay != SCAN_KEEP) {
                        z[l] = v_fma(slot, dslot, z[l]);
                    }
                    sum[c] = v_fma(v_set(w[i]), dslot, sum[c]);
                    v_store_n(ds + i * d + j, scan_decayed(dslot, token, i, decay), rest);
                }
            }
            vfloat zero = {0}, dots[3] = {sum_each(x), sum_each(y), decay != SCAN_KEEP ? sum_each(z) : zero};
            size_t rest = m - i0;
            v_store_n(s_dy + i0, dots[0] + (j0 > 0 ? v_load_n(s_dy + i0, rest) : zero), rest);
            v_store_n(h_ds + i0, dots[1] + (j0 > 0 ? v_load_n(h_ds + i0, rest) : zero), rest);
            if (decay != SCAN_KEEP) {
                v_store_n(s_ds + i0, dots[2] + (j0 > 0 ? v_load_n(s_ds + i0, rest) : zero), rest);
            }
        }
        for (size_t c = 0; c < COLUMNS; c++) {
            size_t j = j0 + c * VECTOR_FLOATS;
            v_store_n(dh + j, sum[c], rest_of(d, j));
        }
    }
}

// The gradient dp [d] of p = Σ k_i s_i: ds_i += k_i dp and dk_i += s_i·dp.
INLINE void scan_read_back(float *ds, float *dk, const float *s, const float *k, const float *dp, size_t m, size_t d)
{
    for (size_t i0 = 0; i0 < m; i0 += VECTOR_FLOATS) {
        vfloat dots[VECTOR_FLOATS];
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            dots[l] = (vfloat){0};
            size_t i = i0 + l;
            for (size_t j = 0; j < d && i < m; j += VECTOR_FLOATS) {
                vfloat dpj = v_load_n(dp + j, d - j);
                v_store_n(ds + i * d + j, v_fma(v_set(k[i]), dpj, v_load_n(ds + i * d + j, d - j)), d - j);
                dots[l] = v_fma(v_load_n(s + i * d + j, d - j), dpj, dots[l]);
            }
        }
        v_store_n(dk + i0, v_load_n(dk + i0, m - i0) + sum_each(dots), m - i0);
    }
}

// Sets what every rule has of a token's gradients, from the dots of scan_walk_back: q, k (without what p brings), alpha; grad->mu. Returns dc.
INLINE float scan_write_dots(ScanGradients *grad, float *alpha, const float *s_dy, const float *h_ds, const float *s_ds, float h_dy, float c,
                             const ScanToken *token, ScanDecay decay, size_t m)
{
    vfloat dc = {0}, dmu = {0};
    for (size_t i = 0; i < m; i += VECTOR_FLOATS) {
        size_t rest = m - i;
        vfloat k = v_load_n(token->k + i, rest), written = v_load_n(h_ds + i, rest), read = v_load_n(s_dy + i, rest);
        vfloat factor = decay == SCAN_SLOTS ? v_load_n(token->alpha + i, rest) : v_set(token->mu);
        v_store_n(grad->q + i, (decay == SCAN_KEEP ? read : factor * read) + v_set(c) * k * v_set(h_dy), rest);
        v_store_n(grad->k + i, v_set(c) * written, rest);
        dc += k * written;
        if (decay == SCAN_SLOTS) {
            v_store_n(alpha + i, v_load_n(s_ds + i, rest), rest);
        } else if (decay == SCAN_HEAD) {
            dmu += v_load_n(s_ds + i, rest);
        }
    }
    grad->mu = decay == SCAN_HEAD ? v_sum(dmu) : 0.0f;
    return v_sum(dc);
}

// dy [d]: the gradient into S q of the token, whose memory before it is s and whose write is w, h.
INLINE const float *scan_output_back(float *dy, ScanGradients *grad, const float *do_, const float *s, const float *w, const float *h, const ScanToken *token,
                                     const ScanRule *rule, size_t m, size_t d)
{
    float y[d];
    slot_sum(y, s, token->q, m, d);
    add_scaled(y, y, dot(token->q, w, m), h, d);
    rule->output_backward(dy, grad, do_, y, token, d);
    return dy;
}

INLINE void scan_backward_token(const ScanBackwardTask *task, const ScanHead *head, const ScanRule *rule, size_t t, const float *s, const float *base,
                                size_t l, size_t m, size_t d)
{
    float own_dy[d], dh[d], dp[d], w[m], s_dy[m], h_ds[m], s_ds[m], dq[m];
    ScanToken token = scan_token(head, t);
    const float *h = rule->write != NULL ? task->hs + l * d : token.v, *dy = task->do_ + t * task->do_row;
    float c = task->cs[l];
    ScanGradients grad = {.q = dq, .k = task->k + t * head->row, .v = task->v + t * head->row, .ln_weight = task->ln_weight, .ln_bias = task->ln_bias};
    scale_to(w, token.k, c, m);
    if (rule->output_backward != NULL) {
        memset(dq, 0, sizeof dq);
        dy = scan_output_back(own_dy, &grad, dy, s, w, h, &token, rule, m, d);
    }
    grad.q = task->q + t * head->row;
    scan_walk_back(task->ds, dh, s_dy, h_ds, s_ds, s, dy, h, w, &token, rule->decay, m, d);
    float dc = scan_write_dots(&grad, task->alpha != NULL ? task->alpha + t * head->alpha_row : NULL, s_dy, h_ds, s_ds, dot(h, dy, d), c, &token,
                               rule->decay, m);
    if (rule->output_backward != NULL) {
        add_scaled(grad.q, grad.q, 1.0f, dq, m);
    }
    memcpy(grad.v, dh, d * sizeof(float));
    grad.g = dc;
    if (rule->write_backward != NULL) {
        rule->write_backward(dp, &grad, dh, dc, task->ps + l * d, &token, d);
        scan_read_back(base != s ? task->dbase : task->ds, grad.k, base, token.k, dp, m, d);
    }
    if (task->g != NULL) {
        task->g[t * head->gate_row] = grad.g;
    }
    if (task->mu != NULL) {
        task->mu[t * head->gate_row] = grad.mu;
    }
}

// The memory that token `first` + l of a group read; `base` as above.
INLINE const float *scan_base(const ScanBackwardTask *task, const float *base, const ScanHead *head, bool lags, size_t first, size_t l, size_t m, size_t d)
{
    if (!lags) {
        return task->states + l * m * d;
    }
    size_t start = (first + l) / head->chunk * head->chunk;
    return start >= first ? task->states + (start - first) * m * d : base;
}

INLINE void scan_backward_sized(const ScanBackwardTask *task, const ScanHead *head, const ScanRule *rule, size_t m, size_t d)
{
    bool lags = scan_lags(head, rule);
    for (size_t group = (head->length + SCAN_GROUP - 1) / SCAN_GROUP; group-- > 0;) {
        size_t first = group * SCAN_GROUP, count = head->length - first < SCAN_GROUP ? head->length - first : SCAN_GROUP;
        const float *base = task->states;   // the first group's chunks begin within it
        if (group > 0) {
            const float *kept = task->kept + (group - 1) * (rule->chunked ? 2 : 1) * m * d;
            memcpy(task->states, kept, m * d * sizeof(float));
            base = rule->chunked ? kept + m * d : base;
        } else if (task->start != NULL) {
            memcpy(task->states, task->start, m * d * sizeof(float));
        } else {
            memset(task->states, 0, m * d * sizeof(float));
        }
        scan_recompute(task, base, head, rule, first, count, m, d);
        for (size_t l = count; l-- > 0;) {
            const float *s = task->states + l * m * d;
            scan_backward_token(task, head, rule, first + l, s, scan_base(task, base, head, lags, first, l, m, d), l, m, d);
            if (lags && (first + l) % head->chunk == 0) {
                add_scaled(task->ds, task->ds, 1.0f, task->dbase, m * d);
                memset(task->dbase, 0, m * d * sizeof(float));
            }
        }
    }
}

// Heads of 64 × 64 have a copy of their own: everything unrolled, no borders. It is faster than a forward by products, which do the same number of
// multiplications and those inside the chunk; a backward by products is always the faster one, as it need not keep a memory for each token.
INLINE void scan_forward_any(const ScanTask *task, const ScanHead *head, const ScanRule *rule)
{
    if (head->m == 64 && head->d == 64) {
        scan_forward_sized(task, head, rule, 64, 64);
    } else if (rule->products && !rule->chunked && head->length > 1) {
        ISA_NAME(scan_chunk_forward)(task, head, rule);
    } else {
        scan_forward_sized(task, head, rule, head->m, head->d);
    }
}

INLINE void scan_backward_any(const ScanBackwardTask *task, const ScanHead *head, const ScanRule *rule)
{
    if (rule->products && (!rule->chunked || (head->chunk >= SCAN_LEAST && SCAN_GROUP % head->chunk == 0))) {
        ISA_NAME(scan_chunk_backward)(task, head, rule);
    } else if (head->m == 64 && head->d == 64) {
        scan_backward_sized(task, head, rule, 64, 64);
    } else {
        scan_backward_sized(task, head, rule, head->m, head->d);
    }
}

// The row NAME_mixer of a rule of this file; what follows are fields of its MixerNeeds.
#define SCAN_MIXER(mixer, rule, ...)                                                                                                                 \
    static void forward_head(const ScanTask *task, const ScanHead *head) { scan_forward_any(task, head, &(rule)); }                                  \
    static void backward_head(const ScanBackwardTask *task, const ScanHead *head) { scan_backward_any(task, head, &(rule)); }                        \
    static size_t state_floats(const ModelConfig *config) { return ISA_NAME(scan_state_floats)(config, &(rule)); }                                   \
    static size_t saved_floats(const MixerShape *shape) { return ISA_NAME(scan_saved_floats)(shape, &(rule)); }                                      \
    static size_t scratch_floats(const MixerShape *shape, bool backward) { return ISA_NAME(scan_scratch_floats)(shape, backward, &(rule)); }         \
    static void state_init(float *state, const float *state0, const MixerShape *shape)                                                               \
    {                                                                                                                                                \
        ISA_NAME(scan_state_init)(state, state0, shape);                                                                                             \
    }                                                                                                                                                \
    static void forward(float *o, float *saved, float *scratch, float *states, size_t state_stride, const MixerTensors *in, const MixerShape *shape) \
    {                                                                                                                                                \
        ISA_NAME(scan_forward)(o, saved, scratch, states, state_stride, in, shape, &(rule), forward_head);                                           \
    }                                                                                                                                                \
    static void backward(const MixerGradients *grad, const float *do_, const float *dstates, size_t state_stride, const float *saved,                \
                         float *scratch, const MixerTensors *in, const MixerShape *shape)                                                            \
    {                                                                                                                                                \
        ISA_NAME(scan_backward)(grad, do_, dstates, state_stride, saved, scratch, in, shape, &(rule), backward_head);                                \
    }                                                                                                                                                \
    extern const Mixer ISA_NAME(mixer##_mixer);                                                                                                      \
    const Mixer ISA_NAME(mixer##_mixer) = {                                                                                                          \
        .name = #mixer,                                                                                                                              \
        .state_floats = state_floats,                                                                                                                \
        .saved_floats = saved_floats,                                                                                                                \
        .scratch_floats = scratch_floats,                                                                                                            \
        .state_init = state_init,                                                                                                                    \
        .forward = forward,                                                                                                                          \
        .backward = backward,                                                                                                                        \
        .needs = {__VA_ARGS__},                                                                                                                      \
    };

#endif
