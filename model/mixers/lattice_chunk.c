// Chunks of Lattice by matrix products; the mathematics stands in lattice_chunk.h. With dO, and dS the gradient into the chunk's end, the backward is
//
//     into A and P: of the end b·ds and h_j·ds; of the outputs q_t (b·do_t) and q_t (h_j·do_t): from these, by the recurrence, dq, dc, du, dG, dg, dmu
//     dH = P dS + dU B + Wᵀ dO + (dG + dGᵀ) H        dB = A dS + (q A)ᵀ dO + dUᵀ H
//     decode, h = v − B k:  dV = dH, dK = dC − dH Bᵀ, dB −= Kᵀ dH
//     encode, c = k − B v:  dK = dC, and as u = B v, dU −= dC brings the rest        similarity: dV = dH, dK = dC
//
// The start comes out of a normalisation, which lets nothing through along a slot: that part of dB is taken away where it arises. (The recurrence would take
// it away as well, but it may be much larger than the rest, and would then cost the rest its digits.)
//
// The forward of training keeps h and u, of short chunks G and W, and the memory every kept_chunks(head) chunks (but the start). The backward runs these chunks
// again, keeping all that the recurrence made, and walks back through them.
#include "model/mixers/lattice_chunk.h"
#include "model/mixers/slot_products.h"

// Chunks between two kept states, at most: of two tokens.
#define GROUP_MOST 16

// As take, some lines apart: rows of the same token in blocks that begin a multiple of 4 kB apart would wait for each other's stores.
static float *take_apart(float *base, size_t *used, size_t n) { return take(base, used, n + 5 * LINE_FLOATS); }

// Lays out a chunk of up to `count` tokens.
static void lay_out_chunk(Chunk *k, float *base, size_t *used, size_t m, size_t d, size_t count, bool all)
{
    size_t mp = padded(m), cp = padded(count), rows = count * mp, pairs = count * (count + 1) / 2;
    k->m = m;
    k->d = d;
    k->mp = mp;
    k->cp = cp;
    k->all = all;
    k->g = take(base, used, cp);
    k->mu = take(base, used, cp);
    k->own_start = all ? take_apart(base, used, m * d) : NULL;
    k->squares = take(base, used, mp);
    k->own_end = take(base, used, mp);
    k->inputs = take_apart(base, used, count * (d + mp + 2 * cp));
    k->turned = take_apart(base, used, (d > mp ? d : mp) * cp);
    k->own_c = take_apart(base, used, rows);
    k->own_q = take_apart(base, used, rows);
    k->own = take_apart(base, used, rows);
    k->mixed = take_apart(base, used, rows);
    k->rho = take_apart(base, used, rows);
    k->p = take_apart(base, used, rows);
    k->inverse = take_apart(base, used, rows);
    k->y = take_apart(base, used, rows);
    k->z = take_apart(base, used, rows);
    k->decay = take_apart(base, used, rows);
    k->factors = take_apart(base, used, rows);
    k->reads = take_apart(base, used, rows);
    k->along = take_apart(base, used, rows);
    k->written = take_apart(base, used, all ? pairs * mp : rows);
    k->sums = take_apart(base, used, padded(pairs) * VECTOR_FLOATS);
}

static void lay_out_gradient(ChunkGradient *g, float *base, size_t *used, size_t m, size_t d, size_t count)
{
    size_t mp = padded(m), cp = padded(count), rows = count * mp;
    g->dg = take(base, used, cp);
    g->dmu = take(base, used, cp);
    g->down = take(base, used, mp);
    g->dp = take_apart(base, used, rows);
    g->f = take_apart(base, used, count * cp);
    g->dq = take_apart(base, used, rows);
    g->own_du = take_apart(base, used, rows);
    g->dc = g->dp;
    g->dgram = take_apart(base, used, count * cp);
    g->read = take_apart(base, used, rows);
    g->gathered = take(base, used, mp);
    g->end = take_apart(base, used, m * d);
    g->turned = take_apart(base, used, (d > mp ? d : mp) * cp);
    g->out_t = take_apart(base, used, d * cp);
    g->minus_dh = take_apart(base, used, count * d);
    g->out = take_apart(base, used, count * d);
}

size_t ISA_NAME(chunk_scratch_floats)(size_t m, size_t d, bool backward)
{
    size_t most = 0;
    for (size_t chunk = 2; chunk <= CHUNK_MOST; chunk++) {
        Head head = {.chunk = chunk};
        Chunk k;
        ChunkGradient g;
        size_t used = 0;
        for (size_t i = 0; i < (backward ? kept_chunks(&head) : 1); i++) {
            lay_out_chunk(&k, NULL, &used, m, d, chunk, backward);
        }
        if (backward) {
            lay_out_gradient(&g, NULL, &used, m, d, chunk);
        }
        most = used > most ? used : most;
    }
    return most + LINE_FLOATS;
}

size_t ISA_NAME(chunk_input_floats)(size_t m, size_t d) { return d + padded(m) + 2 * PRODUCTS_KEPT; }

// What is kept of a chunk's inputs and products, which stand behind each other.
static size_t kept_floats(const Chunk *k) { return k->count * (k->d + k->mp + (k->cp > PRODUCTS_KEPT ? 0 : 2 * k->cp)); }

// Puts h and u of the chunk's tokens into `inputs`, the rows of h and then those of u, from v [count, d] at v_row.
static void make_inputs(float *inputs, const Chunk *k, const float *v, size_t v_row, LatticeObjective objective)
{
    float *h = inputs, *u = inputs + k->count * k->d;
    if (objective == LATTICE_DECODE) {
        multiply(&(Result){h, k->d, v, v_row, NULL, -1.0f, k->ahead}, &(Term){k->c, k->c_row, 1, k->start, k->d, k->m, PART_WHOLE}, 1, k->count, k->d);
    } else {
        put_rows(h, k->d, 1.0f, v, v_row, k->d, k->count);
    }
    transpose(k->turned, k->cp, h, k->d, k->count, k->d);
    read_slots(u, k->start, k->turned, k->cp, k->m, k->d, k->count, false, k->ahead);
}

// rows [C, mp] = rows [C, m] of the head: themselves, where they are whole vectors and need not be copied.
static void take_rows(const float **rows, size_t *row, float *room, const Chunk *k, const float *from, size_t from_row, bool copy)
{
    bool in_place = k->m == k->mp && !copy;
    if (!in_place) {
        copy_rows(room, k->mp, from, from_row, k->m, k->count);
    }
    *rows = in_place ? from : room;
    *row = in_place ? from_row : k->mp;
}

// Tokens [first, first + count), from k->start: everything that comes out of products before the recurrence, and the recurrence. What the forward kept stands
// in kept_inputs, or (NULL) is put into k->inputs.
static void run_chunk(Chunk *k, const Head *head, size_t first, size_t count, const float *kept_inputs)
{
    size_t d = k->d, mp = k->mp;
    k->count = count;
    k->gated = head->form.gated;
    k->normalise = normalises_tokens(head);
    for (size_t t = 0; t < count; t++) {
        k->g[t] = head->g[(first + t) * head->gate_row];
        k->mu[t] = head_mu(head, first + t);
    }
    take_rows(&k->q, &k->q_row, k->own_q, k, head->q + first * head->row, head->row, false);
    take_rows(&k->c, &k->c_row, k->own_c, k, head->k + first * head->row, head->row, head->form.objective == LATTICE_ENCODE);
    if (kept_inputs == NULL) {
        make_inputs(k->inputs, k, head->v + first * head->row, head->row, head->form.objective);
    }
    bool products_kept = kept_inputs != NULL && k->cp <= PRODUCTS_KEPT;
    float *products = k->inputs + count * (d + mp);
    k->h = kept_inputs == NULL ? k->inputs : kept_inputs;
    k->u = k->h + count * d;
    k->gram = products_kept ? k->u + count * mp : products;
    k->weights = k->gram + count * k->cp;
    k->new_weights = products_kept ? NULL : products + count * k->cp;
    if (head->form.objective == LATTICE_ENCODE) {
        add_scaled(k->own_c, k->own_c, -1.0f, k->u, count * mp);
    }
    if (k->normalise && !products_kept) {
        if (kept_inputs != NULL) {
            transpose(k->turned, k->cp, k->h, d, count, d);
        }
        multiply(&(Result){products, k->cp, NULL, 0, NULL, 1.0f, k->ahead}, &(Term){k->h, d, 1, k->turned, k->cp, d, PART_WHOLE}, 1, count, k->cp);
    }
    ISA_NAME(chunk_recurrence)(k);
}

// Squared lengths of the normalised slots s: 1, or 0 of a slot of zeros.
static void known_squares(float *squares, const float *s, const Chunk *k)
{
    vfloat zero = {0}, one = v_set(1.0f);
    slots_products(squares, s, s, k->m, k->d);
    for (size_t i = 0; i < k->mp; i += VECTOR_FLOATS) {
        v_store(squares + i, v_select(v_load(squares + i) == zero, zero, one));
    }
    for (size_t i = k->m; i < k->mp; i++) {
        squares[i] = 1.0f;   // a slot that does not exist has a length like the others, lest its norm be taken for one that was lost
    }
}

// to [m, d] = the memory as the chunk's last token reads it, or normalised as the next chunk meets it, and then `squares` as known_squares sets them; to may
// be k->start.
static void end_chunk(float *to, float *squares, const Chunk *k, bool normalise)
{
    Term written = {k->last, 1, k->mp, k->h, k->d, k->count, PART_WHOLE};
    Result end = {to, k->d, k->start, k->d, k->own_end, 1.0f, k->ahead};
    if (normalise) {
        if (!normalise_slots(&end, squares, &written, 1, k->m, k->d)) {
            known_squares(squares, to, k);
        }
    } else {
        multiply(&end, &written, 1, k->m, k->d);
    }
}

// Adds what every pass reads of tokens [first, first + count) of the head.
static void look_at(Ahead *ahead, const Head *head, size_t first, size_t count)
{
    add_ahead(ahead, head->q + first * head->row, head->row, head->m, count);
    add_ahead(ahead, head->k + first * head->row, head->row, head->m, count);
    add_ahead(ahead, head->g + first * head->gate_row, head->gate_row, 1, count);
}

void ISA_NAME(chunk_forward)(float *o, size_t o_row, float *inputs, float *kept, float *to, const float *s, float *scratch, const Head *head, size_t first,
                             size_t count, bool follows)
{
    Chunk k;
    size_t used = 0;
    lay_out_chunk(&k, aligned(scratch), &used, head->m, head->d, head->chunk, false);
    k.start = s;
    if (!follows) {
        known_squares(k.squares, s, &k);
    }
    size_t next = first + count, follow = head->length - next < count ? head->length - next : count;
    Ahead ahead = {.n = 0};
    look_at(&ahead, head, next, follow);
    add_ahead(&ahead, head->v + next * head->row, head->row, k.d, follow);
    begin_ahead(&ahead, s);
    k.ahead = &ahead;
    run_chunk(&k, head, first, count, NULL);
    if (inputs != NULL) {
        stream_rows(inputs + first * ISA_NAME(chunk_input_floats)(k.m, k.d), 0, 1.0f, k.inputs, 0, kept_floats(&k), 1);
    }
    Term read[2] = {{k.mixed, k.mp, 1, s, k.d, k.m, PART_WHOLE}, {k.weights, k.cp, 1, k.h, k.d, count, PART_LOWER}};
    multiply(&(Result){k.turned, k.d, NULL, 0, NULL, 1.0f, &ahead}, read, 2, count, k.d);   // nobody needs the transpose any more
    stream_rows(o, o_row, 1.0f, k.turned, k.d, k.d, count);
    end_chunk(to, k.squares, &k, k.normalise || count == head->chunk);
    ask_rest(&ahead);
    if (kept != NULL) {
        stream_rows(kept, 0, 1.0f, to, 0, k.m * k.d, 1);
    }
}

// What return_chunk for a chunk of `count` tokens from `first` on, the place-th of its group, asks for: where its gradients of gates go, what the chunk in its
// place in the group before reads, and its share of the memory before that group.
static void look_back(Ahead *ahead, const HeadGradients *grad, const Head *head, const float *do_, size_t do_row, const float *kept, const float *inputs,
                      size_t first, size_t count, size_t place)
{
    size_t group = kept_chunks(head), back = group * head->chunk, size = head->m * head->d;
    ahead->n = 0;
    add_ahead(ahead, grad->g + first * head->gate_row, head->gate_row, 1, count);
    if (first < back) {
        return;
    }
    const float *before = inputs + (first - back) * ISA_NAME(chunk_input_floats)(head->m, head->d);
    look_at(ahead, head, first - back, count);
    add_ahead(ahead, before, 0, count * ISA_NAME(chunk_input_floats)(head->m, head->d), 1);
    add_ahead(ahead, do_ + (first - back) * do_row, do_row, head->d, count);
    if (first / back > 1) {
        add_part(ahead, kept + (first / back - 2) * size, size, place, group);
    }
}

// ds [m, d] into the end of a chunk becomes that into its start; the rows of grad are set. do_: the chunk's first row.
static void return_chunk(const HeadGradients *grad, float *ds, ChunkGradient *g, const Chunk *k, const Head *head, const float *do_, size_t do_row,
                         size_t first)
{
    size_t m = k->m, d = k->d, mp = k->mp, cp = k->cp, count = k->count, row = head->row;
    bool decode = head->form.objective == LATTICE_DECODE;
    if (!k->normalise) {
        end_chunk(g->end, NULL, k, false);
        slots_normalise_backward(ds, g->end, m, d);
    }
    copy_rows(g->out, d, do_, do_row, d, count);
    transpose(g->out_t, cp, g->out, d, count, d);
    transpose(g->turned, cp, k->h, d, count, d);
    read_two(g->dp, g->dq, g->down, ds, k->start, g->turned, g->out_t, cp, m, d, count, k->ahead);
    multiply(&(Result){g->f, cp, NULL, 0, NULL, 1.0f, k->ahead}, &(Term){g->out, d, 1, g->turned, cp, d, PART_WHOLE}, 1, count, cp);
    ISA_NAME(chunk_recurrence_backward)(g, k);
    if (head->form.objective == LATTICE_ENCODE) {
        add_scaled(g->du, g->du, -1.0f, g->dc, count * mp);
    }
    Term to_h[4] = {
        {g->last, mp, 1, ds, d, m, PART_WHOLE},
        {g->du, mp, 1, k->start, d, m, PART_WHOLE},
        {k->weights, 1, cp, g->out, d, count, PART_UPPER},
        {g->dgram, cp, 1, k->h, d, count, PART_WHOLE},
    };
    multiply(&(Result){g->minus_dh, d, NULL, 0, NULL, -1.0f, k->ahead}, to_h, k->normalise ? 4 : 3, count, d);
    if (decode) {
        transpose(g->turned, cp, g->minus_dh, d, count, d);
        read_slots(g->dc, k->start, g->turned, cp, m, d, count, true, k->ahead);
    }
    Term to_start[3] = {
        {g->mixed, 1, mp, g->out, d, count, PART_WHOLE},
        {g->du, 1, mp, k->h, d, count, PART_WHOLE},
        {k->c, 1, k->c_row, g->minus_dh, d, count, PART_WHOLE},
    };
    multiply_across(&(Result){ds, d, ds, d, k->own_end, 1.0f, k->ahead}, to_start, decode ? 3 : 2, m, d, k->start);
    ask_rest(k->ahead);
    stream_rows(grad->q + first * row, row, 1.0f, g->dq, mp, m, count);
    stream_rows(grad->k + first * row, row, 1.0f, g->dc, mp, m, count);
    stream_rows(grad->v + first * row, row, -1.0f, g->minus_dh, d, d, count);
    for (size_t t = 0; t < count; t++) {
        grad->g[(first + t) * head->gate_row] = g->dg[t];
        if (grad->mu != NULL) {
            grad->mu[(first + t) * head->gate_row] = g->dmu[t];
        }
    }
}

void ISA_NAME(chunk_backward)(const HeadGradients *grad, float *ds, float *scratch, const float *kept, const float *inputs, const float *state0,
                              const Head *head, const float *do_, size_t do_row)
{
    Chunk chunks[GROUP_MOST];
    ChunkGradient g;
    Ahead ahead;
    size_t used = 0, group = kept_chunks(head), size = head->m * head->d, n_chunks = (head->length + head->chunk - 1) / head->chunk;
    float *base = aligned(scratch);
    for (size_t i = 0; i < group; i++) {
        lay_out_chunk(&chunks[i], base, &used, head->m, head->d, head->chunk, true);
        chunks[i].ahead = &ahead;
    }
    lay_out_gradient(&g, base, &used, head->m, head->d, head->chunk);
    for (size_t last = n_chunks; last > 0;) {
        size_t begin = (last - 1) / group * group;   // NOLINT(clang-analyzer-*): a chunk has a token or more, and so has a group a chunk
        chunks[0].start = begin > 0 ? kept + (begin / group - 1) * size : chunks[0].own_start;
        if (begin == 0) {
            memcpy(chunks[0].own_start, state0, size * sizeof(float));
            slots_normalise(chunks[0].own_start, head->m, head->d);
        }
        known_squares(chunks[0].squares, chunks[0].start, &chunks[0]);
        ahead.n = 0;
        begin_ahead(&ahead, ds);
        for (size_t i = begin; i < last; i++) {
            size_t first = i * head->chunk, rest = head->length - first;
            Chunk *k = &chunks[i - begin];
            // The forward took a token alone as a token, and kept nothing of it.
            run_chunk(k, head, first, rest < head->chunk ? rest : head->chunk, rest == 1 ? NULL : inputs + first * ISA_NAME(chunk_input_floats)(k->m, k->d));
            if (i + 1 < last) {
                end_chunk(k[1].own_start, k[1].squares, k, true);
                k[1].start = k[1].own_start;
            }
        }
        for (; last > begin; last--) {
            size_t first = (last - 1) * head->chunk;
            look_back(&ahead, grad, head, do_, do_row, kept, inputs, first, chunks[last - 1 - begin].count, last - 1 - begin);
            begin_ahead(&ahead, ds);
            return_chunk(grad, ds, &g, &chunks[last - 1 - begin], head, do_ + first * do_row, do_row, first);
        }
    }
    v_stream_end();
}
