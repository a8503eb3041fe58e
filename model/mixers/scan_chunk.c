// Chunks of the memories of linear writes by matrix products; the mathematics stands in scan_chunk.h.
//
// The forward of training keeps the memory every SCAN_GROUP tokens (but the start). The backward runs the chunks between two of them again, keeping what
// stands between the products, and walks back through them.
#include "model/mixers/products.h"
#include "model/mixers/scan_chunk.h"

// Chunks between two kept memories, at most.
#define GROUP_MOST (SCAN_GROUP / SCAN_LEAST)

// Rows of a block of the triangles.
#define TRIANGLE_ROWS 8

// Tokens of a chunk; `chunk`: the head's.
static size_t chunk_tokens(const ScanRule *rule, size_t chunk) { return rule->chunked ? chunk : rule->decay == SCAN_SLOTS ? SCAN_SLOT_CHUNK : SCAN_CHUNK; }

// Whether tokens read what those before them in the chunk wrote.
static bool has_triangle(const ScanRule *rule) { return rule->reads && !rule->chunked; }

static void lay_out_chunk(ScanChunk *c, float *base, size_t *used, size_t m, size_t d, size_t count, const ScanRule *rule, bool all)
{
    size_t mp = padded(m), dp = padded(d), cp = padded(count), pairs = count * (count + 1) / 2;
    bool slots = rule->decay == SCAN_SLOTS;
    *c = (ScanChunk){.m = m, .d = d, .mp = mp, .dp = dp, .all = all};
    c->q = take(base, used, count * mp);
    c->k = take(base, used, count * mp);
    c->h = take(base, used, count * dp);
    c->read = take(base, used, count * mp);
    c->w = take(base, used, count * cp);
    if (all) {
        c->own_start = take(base, used, m * d);
    }
    if (slots) {
        c->alpha = take(base, used, count * mp);
        c->own = take(base, used, count * mp);
        c->pairs = take(base, used, (all ? pairs : count) * mp);
        c->sums = take(base, used, padded(pairs) * VECTOR_FLOATS);
        return;
    }
    c->write = take(base, used, count * mp);
    c->keep = take(base, used, mp);
    c->q_t = take(base, used, mp * cp);
    c->g = take(base, used, cp);
    c->mu = take(base, used, cp);
    c->ratio = take(base, used, count * cp);
    c->qk = take(base, used, count * cp);
    c->decay = take(base, used, cp);
    c->rest = take(base, used, cp);
    if (rule->reads) {
        c->ks = take(base, used, count * dp);
    }
    if (has_triangle(rule)) {
        c->l = take(base, used, count * cp);
        c->k_t = take(base, used, mp * cp);
        c->kk = take(base, used, count * cp);
    }
}

static void lay_out_gradient(ScanChunkGradient *g, float *base, size_t *used, size_t m, size_t d, size_t count, const ScanRule *rule)
{
    size_t mp = padded(m), dp = padded(d), cp = padded(count);
    *g = (ScanChunkGradient){.do_ = take(base, used, count * dp)};
    g->dh = take(base, used, count * dp);
    g->do_t = take(base, used, dp * cp);
    g->start_t = take(base, used, dp * mp);
    g->ds_t = take(base, used, dp * mp);
    g->kept = take(base, used, mp);
    g->dot = take(base, used, count * mp);
    g->dw = take(base, used, count * cp);
    if (rule->decay == SCAN_SLOTS) {
        g->dwrite = take(base, used, count * mp);
        return;
    }
    g->dl = take(base, used, count * cp);
    g->dh_t = take(base, used, dp * cp);
    g->kds = take(base, used, count * dp);
    g->left = take(base, used, cp);
    g->met = take(base, used, cp);
    g->dg = take(base, used, cp);
    g->dmu = take(base, used, cp);
    g->sums = take(base, used, 2 * cp * VECTOR_FLOATS);
    g->k_rows = take(base, used, count * mp);
    if (rule->chunked) {
        g->beside_q = take(base, used, count * mp);
        g->beside_k = take(base, used, count * mp);
    }
}

// Chunks of a group, and their gradients.
static size_t lay_out_group(ScanChunk *chunks, ScanChunkGradient *g, float *base, size_t m, size_t d, size_t tokens, const ScanRule *rule)
{
    size_t used = 0;
    for (size_t i = 0; i < SCAN_GROUP / tokens; i++) {
        lay_out_chunk(&chunks[i], base, &used, m, d, tokens, rule, true);
    }
    lay_out_gradient(g, base, &used, m, d, tokens, rule);
    return used;
}

size_t ISA_NAME(scan_chunk_floats)(size_t m, size_t d, bool backward, const ScanRule *rule)
{
    ScanChunk chunks[GROUP_MOST];
    ScanChunkGradient g;
    size_t most = 0;
    for (size_t chunk = SCAN_LEAST; backward && chunk <= SCAN_GROUP; chunk *= 2) {
        size_t used = lay_out_group(chunks, &g, NULL, m, d, chunk_tokens(rule, chunk), rule);
        most = used > most ? used : most;
    }
    if (!backward) {
        lay_out_chunk(chunks, NULL, &most, m, d, chunk_tokens(rule, SCAN_GROUP), rule, false);
    }
    return most + LINE_FLOATS;
}

// y [C, cp], row j: x_j·z_t, of whole vectors that hold a t ≥ j. x [C, n] at x_row, z_t [n, cp].
static void multiply_upper(float *y, float sign, const float *x, size_t x_row, const float *z_t, size_t n, const ScanChunk *c)
{
    size_t count = c->count, cp = c->cp;
    for (size_t j = 0; j < count; j += VECTOR_FLOATS) {
        size_t rows = count - j < VECTOR_FLOATS ? count - j : VECTOR_FLOATS;
        multiply(&(Result){y + j * cp + j, cp, NULL, 0, NULL, sign, c->ahead}, &(Term){x + j * x_row, x_row, 1, z_t + j, cp, n, PART_WHOLE}, 1, rows, cp - j);
    }
}

// out [padded(count)] = x_t·y_t over n numbers of rows [count, row]; zeros behind the last.
static void row_dots(float *out, const float *x, const float *y, size_t row, size_t n, size_t count)
{
    for (size_t t = 0; t < count; t += VECTOR_FLOATS) {
        vfloat sums[VECTOR_FLOATS];
        for (size_t l = 0; l < VECTOR_FLOATS; l++) {
            size_t at = (t + l) * row;
            sums[l] = (vfloat){0};
            for (size_t i = 0; t + l < count && i < n; i += VECTOR_FLOATS) {
                sums[l] = v_fma(v_load_n(x + at + i, n - i), v_load_n(y + at + i, n - i), sums[l]);
            }
        }
        v_store(out + t, sum_each(sums));
    }
}

// h [row] −= Σ_l factor_l from_l over n rows, which stand `step` numbers apart, their factors factor_step.
INLINE void settle_row(float *h, const float *from, ptrdiff_t step, const float *factor, ptrdiff_t factor_step, size_t n, size_t row)
{
    for (size_t j = 0; j < row; j += COLUMNS * VECTOR_FLOATS) {
        vfloat sum[COLUMNS], x[COLUMNS];
        load_columns(sum, h, j, row);
        for (size_t l = 0; l < n; l++) {
            load_columns(x, from + (ptrdiff_t)l * step, j, row);
            vfloat weight = v_set(-factor[(ptrdiff_t)l * factor_step]);
            for (size_t c = 0; c < COLUMNS; c++) {
                sum[c] = v_fma(weight, x[c], sum[c]);
            }
        }
        store_columns(h, sum, j, row);
    }
}

// h [C, dp] becomes (I + L)⁻¹ h, from the first row to the last.
static void substitute(float *h, const ScanChunk *c)
{
    const float *l = c->l;
    size_t row = c->dp, cp = c->cp, count = c->count;
    for (size_t first = 0; first < count; first += TRIANGLE_ROWS) {
        size_t end = first + TRIANGLE_ROWS < count ? first + TRIANGLE_ROWS : count;
        float *block = h + first * row;
        multiply(&(Result){block, row, block, row, NULL, -1.0f, c->ahead}, &(Term){l + first, 1, cp, h, row, first, PART_WHOLE}, 1, end - first, row);
        for (size_t t = first + 1; t < end; t++) {
            settle_row(h + t * row, block, (ptrdiff_t)row, l + first * cp + t, (ptrdiff_t)cp, t - first, row);
        }
    }
}

// h becomes (I + L)⁻ᵀ h, from the last row to the first.
static void substitute_back(float *h, const ScanChunk *c)
{
    const float *l = c->l;
    size_t row = c->dp, cp = c->cp, count = c->count;
    for (size_t end = count, first; end > 0; end = first) {
        first = (end - 1) / TRIANGLE_ROWS * TRIANGLE_ROWS;
        float *block = h + first * row, *last = h + (end - 1) * row;
        multiply(&(Result){block, row, block, row, NULL, -1.0f, c->ahead}, &(Term){l + first * cp + end, cp, 1, h + end * row, row, count - end, PART_WHOLE}, 1,
                 end - first, row);
        for (size_t j = end - 1; j-- > first;) {
            settle_row(h + j * row, last, -(ptrdiff_t)row, l + j * cp + end - 1, -1, end - 1 - j, row);
        }
    }
}

// Tokens [first, first + count) of the head from `start` [m, d]: everything up to the weights, and what the tokens write.
static void run_chunk(ScanChunk *c, const float *start, const ScanHead *head, const ScanRule *rule, size_t first, size_t count)
{
    size_t row = head->row, cp = c->cp = padded(count), m = c->m, mp = c->mp, dp = c->dp;
    c->count = count;
    c->start = start;
    copy_rows(c->q, mp, head->q + first * row, row, m, count);
    copy_rows(c->k, mp, head->k + first * row, row, m, count);
    copy_rows(c->h, dp, head->v + first * row, row, c->d, count);
    if (rule->decay == SCAN_SLOTS) {
        copy_rows(c->alpha, mp, head->alpha + first * head->alpha_row, head->alpha_row, m, count);
        ISA_NAME(scan_slot_weights)(c);
        return;
    }
    for (size_t t = 0; t < count; t++) {
        ScanToken token = scan_token(head, first + t);
        c->g[t] = token.g;
        c->mu[t] = token.mu;
    }
    transpose(c->q_t, cp, c->q, mp, count, mp);
    multiply_upper(c->qk, 1.0f, c->k, mp, c->q_t, m, c);
    if (has_triangle(rule)) {
        transpose(c->k_t, cp, c->k, mp, count, mp);
        multiply_upper(c->kk, 1.0f, c->k, mp, c->k_t, m, c);
    }
    ISA_NAME(scan_weights)(c, has_triangle(rule));
    if (rule->reads) {
        multiply(&(Result){c->ks, dp, NULL, 0, NULL, 1.0f, c->ahead}, &(Term){c->k, mp, 1, start, c->d, m, PART_WHOLE}, 1, count, c->d);
    }
    for (size_t t = 0; rule->chunked && t < count; t++) {
        ScanToken token = scan_token(head, first + t);
        rule->write(c->h + t * dp, c->ks + t * dp, &token, c->d);
    }
    if (has_triangle(rule)) {
        for (size_t t = 0; t < count; t++) {
            add_scaled(c->h + t * dp, c->h + t * dp, -c->decay[t], c->ks + t * dp, c->d);
        }
        substitute(c->h, c);
    }
}

// to [m, d] = the memory at the chunk's end; to may be its start.
static void end_chunk(float *to, const ScanChunk *c)
{
    multiply(&(Result){to, c->d, c->start, c->d, c->keep, 1.0f, c->ahead}, &(Term){c->write, 1, c->mp, c->h, c->dp, c->count, PART_WHOLE}, 1, c->m, c->d);
}

// `ahead` becomes a list of what tokens [first, first + count) of the head read.
static void look_at(Ahead *ahead, const ScanHead *head, size_t first, size_t count)
{
    ahead->n = 0;
    add_ahead(ahead, head->q + first * head->row, head->row, head->m, count);
    add_ahead(ahead, head->k + first * head->row, head->row, head->m, count);
    add_ahead(ahead, head->v + first * head->row, head->row, head->d, count);
    if (head->alpha != NULL) {
        add_ahead(ahead, head->alpha + first * head->alpha_row, head->alpha_row, head->m, count);
    }
}

void ISA_NAME(scan_chunk_forward)(const ScanTask *task, const ScanHead *head, const ScanRule *rule)
{
    ScanChunk c;
    size_t used = 0, size = head->m * head->d, tokens = chunk_tokens(rule, head->chunk);
    Ahead ahead;
    lay_out_chunk(&c, aligned(task->scratch), &used, head->m, head->d, tokens, rule, false);
    c.ahead = &ahead;
    for (size_t first = 0, count; first < head->length; first += count) {
        count = head->length - first < tokens ? head->length - first : tokens;
        if (task->kept != NULL && first > 0 && first % SCAN_GROUP == 0) {
            memcpy(task->kept + (first / SCAN_GROUP - 1) * size, task->s, size * sizeof(float));
        }
        size_t next = first + count, rest = head->length - next;
        look_at(&ahead, head, next, rest < tokens ? rest : tokens);
        begin_ahead(&ahead, task->s);
        prefetch_rows(task->o + first * task->o_row, task->o_row, head->d, count);
        run_chunk(&c, task->s, head, rule, first, count);
        Term read[2] = {{c.read, c.mp, 1, task->s, c.d, c.m, PART_WHOLE}, {c.w, 1, c.cp, c.h, c.dp, count, PART_LOWER}};
        multiply(&(Result){task->o + first * task->o_row, task->o_row, NULL, 0, NULL, 1.0f, &ahead}, read, 2, count, c.d);
        end_chunk(task->s, &c);
        ask_rest(&ahead);
    }
}

// dh, dw, dl and what depends on S_b through them, with dv's rows.
static void return_writes(const ScanBackwardTask *task, ScanChunkGradient *g, const ScanChunk *c, const ScanRule *rule, size_t first, size_t row)
{
    size_t m = c->m, d = c->d, mp = c->mp, dp = c->dp, cp = c->cp, count = c->count;
    bool slots = rule->decay == SCAN_SLOTS;
    Term into[2] = {{c->w, cp, 1, g->do_, dp, count, PART_UPPER}, {c->write, mp, 1, task->ds, d, m, PART_WHOLE}};
    if (slots) {
        multiply(&(Result){g->dh, dp, NULL, 0, NULL, 1.0f, c->ahead}, into, 2, count, d);
    } else {
        multiply(&(Result){g->kds, dp, NULL, 0, NULL, 1.0f, c->ahead}, &(Term){c->k, mp, 1, task->ds, d, m, PART_WHOLE}, 1, count, d);
        multiply(&(Result){g->dh, dp, g->kds, dp, c->rest, 1.0f, c->ahead}, into, 1, count, d);
    }
    if (has_triangle(rule)) {
        substitute_back(g->dh, c);
        transpose(g->dh_t, cp, g->dh, dp, count, d);
        multiply_upper(g->dl, -1.0f, c->h, dp, g->dh_t, d, c);
    }
    if (!rule->chunked) {
        stream_rows(task->v + first * row, row, 1.0f, g->dh, dp, d, count);
    }
    transpose(g->do_t, cp, g->do_, dp, count, d);
    multiply_upper(g->dw, 1.0f, c->h, dp, g->do_t, d, c);
    multiply(&(Result){g->dot, mp, NULL, 0, NULL, 1.0f, c->ahead}, &(Term){g->do_, dp, 1, g->start_t, mp, d, PART_WHOLE}, 1, count, mp);
}

// Where the rule turns y = S q into the output: do_ becomes the gradient into y, and beside_q is set.
static void return_outputs(const ScanBackwardTask *task, ScanChunkGradient *g, const ScanChunk *c, const ScanHead *head, const ScanRule *rule, size_t first)
{
    size_t d = c->d, mp = c->mp, dp = c->dp;
    float dy[d];
    Term read[2] = {{c->read, mp, 1, c->start, d, c->m, PART_WHOLE}, {c->w, 1, c->cp, c->h, dp, c->count, PART_LOWER}};
    multiply(&(Result){g->dh, dp, NULL, 0, NULL, 1.0f, c->ahead}, read, 2, c->count, d);
    memset(g->beside_q, 0, c->count * mp * sizeof(float));
    for (size_t t = 0; t < c->count; t++) {
        ScanToken token = scan_token(head, first + t);
        ScanGradients grad = {.q = g->beside_q + t * mp, .ln_weight = task->ln_weight, .ln_bias = task->ln_bias};
        rule->output_backward(dy, &grad, g->do_ + t * dp, g->dh + t * dp, &token, d);
        memcpy(g->do_ + t * dp, dy, d * sizeof(float));
    }
}

// Where h is the rule's, of a product with the chunk's start: dh becomes −dp, as if h = v − p, beside_k and v's rows are set.
static void return_reads(const ScanBackwardTask *task, ScanChunkGradient *g, const ScanChunk *c, const ScanHead *head, const ScanRule *rule, size_t first)
{
    size_t d = c->d, mp = c->mp, dp = c->dp;
    float dread[d];
    memset(g->beside_k, 0, c->count * mp * sizeof(float));
    for (size_t t = 0; t < c->count; t++) {
        ScanToken token = scan_token(head, first + t);
        ScanGradients grad = {.k = g->beside_k + t * mp, .v = task->v + (first + t) * head->row, .ln_weight = task->ln_weight, .ln_bias = task->ln_bias};
        rule->write_backward(dread, &grad, g->dh + t * dp, 0.0f, c->ks + t * dp, &token, d);
        scale_to(g->dh + t * dp, dread, -1.0f, d);
    }
}

// x [count, dp] = sign factor_t row t of x
static void turn_rows(float *x, float sign, const float *factor, const ScanChunk *c)
{
    for (size_t t = 0; t < c->count; t++) {
        scale_to(x + t * c->dp, x + t * c->dp, sign * factor[t], c->d);
    }
}

// One decay for a head: the rows of q, k, g and mu. dh becomes −D Z, h becomes E g H.
static void return_rows(const ScanBackwardTask *task, ScanChunkGradient *g, const ScanChunk *c, const ScanHead *head, const ScanRule *rule, size_t first)
{
    size_t m = c->m, d = c->d, mp = c->mp, dp = c->dp, cp = c->cp, count = c->count, row = head->row;
    row_dots(g->left, g->kds, c->h, dp, d, count);
    row_dots(g->met, g->dot, c->q, mp, m, count);
    if (has_triangle(rule)) {
        float along[SCAN_CHUNK];
        row_dots(along, c->ks, g->dh, dp, d, count);
        for (size_t t = 0; t < count; t++) {
            g->met[t] -= along[t];
        }
    }
    ISA_NAME(scan_weights_backward)(g, c, has_triangle(rule));
    multiply(&(Result){g->dot, mp, g->dot, mp, c->decay, 1.0f, c->ahead}, &(Term){g->dw, 1, cp, c->k, mp, count, PART_LOWER}, 1, count, mp);
    turn_rows(c->h, 1.0f, c->rest, c);
    turn_rows(g->dh, -1.0f, c->decay, c);
    Term to_k[5] = {
        {c->h, dp, 1, g->ds_t, mp, d, PART_WHOLE},
        {g->dw, cp, 1, c->q, mp, count, PART_UPPER},
        {g->dh, dp, 1, g->start_t, mp, d, PART_WHOLE},
        {g->dl, cp, 1, c->k, mp, count, PART_UPPER},
        {g->dl, 1, cp, c->k, mp, count, PART_LOWER},
    };
    multiply(&(Result){g->k_rows, mp, NULL, 0, NULL, 1.0f, c->ahead}, to_k, has_triangle(rule) ? 5 : rule->reads ? 3 : 2, count, mp);
    if (rule->chunked) {
        add_scaled(g->dot, g->dot, 1.0f, g->beside_q, count * mp);
        add_scaled(g->k_rows, g->k_rows, 1.0f, g->beside_k, count * mp);
    }
    stream_rows(task->q + first * row, row, 1.0f, g->dot, mp, m, count);
    stream_rows(task->k + first * row, row, 1.0f, g->k_rows, mp, m, count);
    for (size_t t = 0; t < count; t++) {
        if (task->g != NULL) {
            task->g[(first + t) * head->gate_row] = g->dg[t];
        }
        if (task->mu != NULL) {
            task->mu[(first + t) * head->gate_row] = g->dmu[t];
        }
    }
}

// ds [m, d] into the end of the chunk becomes that into its start; the gradients' rows are set.
static void return_chunk(const ScanBackwardTask *task, ScanChunkGradient *g, const ScanChunk *c, const ScanHead *head, const ScanRule *rule, size_t first)
{
    size_t m = c->m, d = c->d, mp = c->mp, dp = c->dp, count = c->count, row = head->row;
    prefetch_rows(task->v + first * row, row, d, rule->chunked ? count : 0);
    copy_rows(g->do_, dp, task->do_ + first * task->do_row, task->do_row, d, count);
    transpose(g->start_t, mp, c->start, d, m, d);
    transpose(g->ds_t, mp, task->ds, d, m, d);
    column_dots(g->kept, g->start_t, g->ds_t, d, mp);
    if (rule->output_backward != NULL) {
        return_outputs(task, g, c, head, rule, first);
    }
    return_writes(task, g, c, rule, first, row);
    if (rule->chunked) {
        return_reads(task, g, c, head, rule, first);
    }
    if (rule->decay == SCAN_SLOTS) {
        prefetch_rows(task->q + first * row, row, m, count);
        prefetch_rows(task->k + first * row, row, m, count);
        multiply(&(Result){g->dwrite, mp, NULL, 0, NULL, 1.0f, c->ahead}, &(Term){c->h, dp, 1, g->ds_t, mp, d, PART_WHOLE}, 1, count, mp);
        g->dq = task->q + first * row;
        g->dk = task->k + first * row;
        g->dalpha = task->alpha + first * head->alpha_row;
        g->row = row;
        g->alpha_row = head->alpha_row;
        ISA_NAME(scan_slot_weights_backward)(g, c);
    } else {
        return_rows(task, g, c, head, rule, first);
    }
    Term to_start[2] = {{c->read, 1, mp, g->do_, dp, count, PART_WHOLE}, {c->k, 1, mp, g->dh, dp, count, PART_WHOLE}};
    multiply(&(Result){task->ds, d, task->ds, d, c->keep, 1.0f, c->ahead}, to_start, rule->reads ? 2 : 1, m, d);
    ask_rest(c->ahead);
}

// `ahead` becomes a list of what the chunk in the place of chunk `place` in the group before reads, and of its share of the memory before that group.
static void look_back(Ahead *ahead, const ScanBackwardTask *task, const ScanHead *head, size_t group, size_t place, size_t tokens, size_t count, size_t kept)
{
    ahead->n = 0;
    if (group > 0) {
        size_t first = (group - 1) * SCAN_GROUP + place * tokens;
        look_at(ahead, head, first, count);
        add_ahead(ahead, task->do_ + first * task->do_row, task->do_row, head->d, count);
    }
    if (group > 1) {
        add_part(ahead, task->kept + (group - 2) * kept, head->m * head->d, place, SCAN_GROUP / tokens);
    }
}

void ISA_NAME(scan_chunk_backward)(const ScanBackwardTask *task, const ScanHead *head, const ScanRule *rule)
{
    ScanChunk chunks[GROUP_MOST];
    ScanChunkGradient g;
    size_t tokens = chunk_tokens(rule, head->chunk), size = head->m * head->d, kept = (rule->chunked ? 2 : 1) * size;
    Ahead ahead;
    lay_out_group(chunks, &g, aligned(task->scratch), head->m, head->d, tokens, rule);
    for (size_t i = 0; i < SCAN_GROUP / tokens; i++) {
        chunks[i].ahead = &ahead;
    }
    for (size_t group = (head->length + SCAN_GROUP - 1) / SCAN_GROUP; group-- > 0;) {
        size_t first = group * SCAN_GROUP, count = head->length - first < SCAN_GROUP ? head->length - first : SCAN_GROUP;
        const float *start = group > 0 ? task->kept + (group - 1) * kept : task->start;
        if (start == NULL) {
            memset(chunks[0].own_start, 0, size * sizeof(float));
            start = chunks[0].own_start;
        }
        ahead.n = 0;
        begin_ahead(&ahead, task->ds);
        for (size_t l = 0; l < count; l += tokens) {
            ScanChunk *c = &chunks[l / tokens];
            run_chunk(c, start, head, rule, first + l, count - l < tokens ? count - l : tokens);
            if (l + tokens < count) {
                end_chunk(c[1].own_start, c);
                start = c[1].own_start;
            }
        }
        for (size_t i = (count + tokens - 1) / tokens; i-- > 0;) {
            look_back(&ahead, task, head, group, i, tokens, chunks[i].count, kept);
            begin_ahead(&ahead, task->ds);
            return_chunk(task, &g, &chunks[i], head, rule, first + i * tokens);
        }
    }
    v_stream_end();
}
