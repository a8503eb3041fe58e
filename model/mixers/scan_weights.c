// The scalars of a chunk (scan_chunk.h): decays and weights between its tokens, and their backward. One decay for a head: vectors over the tokens t of a row
// j. One for each slot: vectors over slots, for each pair of tokens.
#include "model/mixers/scan_chunk.h"

#define ROW_VECTORS (SCAN_CHUNK / VECTOR_FLOATS)

// 0, 1, 2 … from `first` on.
INLINE vint counted_from(size_t first)
{
    vint index = {0};
    for (size_t l = 0; l < VECTOR_FLOATS; l++) {
        index[l] = (int32_t)(first + l);
    }
    return index;
}

// to [C, mp] = factor_t row t of from
static void scale_rows(float *to, const float *factor, const float *from, const ScanChunk *c)
{
    for (size_t t = 0; t < c->count; t++) {
        scale_to(to + t * c->mp, from + t * c->mp, factor[t], c->mp);
    }
}

void ISA_NAME(scan_weights)(ScanChunk *c, bool reads)
{
    vfloat ratio[ROW_VECTORS] = {{0}}, zero = {0}, one = v_set(1.0f);
    size_t last = c->count - 1, vectors = c->cp / VECTOR_FLOATS;
    for (size_t j = c->count; j-- > 0;) {
        for (size_t v = 0; v < vectors; v++) {
            size_t at = j * c->cp + v * VECTOR_FLOATS;
            bool none = (v + 1) * VECTOR_FLOATS <= j;   // no t ≥ j
            vint diagonal = counted_from(v * VECTOR_FLOATS) == (vint){0} + (int32_t)j;
            vfloat later = j < last ? v_set(c->mu[j + 1]) * ratio[v] : zero;
            ratio[v] = v_select(diagonal, one, later);
            v_store(c->ratio + at, ratio[v]);
            v_store(c->w + at, none ? zero : v_set(c->g[j]) * ratio[v] * v_load(c->qk + at));
            if (reads) {
                v_store(c->l + at, none ? zero : v_set(c->g[j]) * later * v_load(c->kk + at));
            }
        }
        c->rest[j] = c->g[j] * c->ratio[j * c->cp + last];
    }
    float decay = 1.0f;
    for (size_t t = 0; t < c->count; t++) {
        decay *= c->mu[t];
        c->decay[t] = decay;
    }
    for (size_t i = 0; i < c->mp; i += VECTOR_FLOATS) {
        v_store(c->keep + i, v_set(decay));
    }
    scale_rows(c->read, c->decay, c->q, c);
    scale_rows(c->write, c->rest, c->k, c);
}

void ISA_NAME(scan_weights_backward)(ScanChunkGradient *g, const ScanChunk *c, bool reads)
{
    // paths[t] = Σ R_(l−1)j x_tj over j < l, for the l at hand; `end` the same of t = C.
    vfloat paths[ROW_VECTORS], zero = {0};
    size_t last = c->count - 1, vectors = c->cp / VECTOR_FLOATS;
    float end = 0.0f, *dg_sums = g->sums, *dmu_sums = g->sums + padded(c->count) * VECTOR_FLOATS;
    for (size_t i = 0; i < c->m; i++) {
        end += g->kept[i];
    }
    for (size_t v = 0; v < vectors; v++) {
        paths[v] = v_load(g->met + v * VECTOR_FLOATS);
    }
    for (size_t j = 0; j < c->count; j++) {
        vfloat dg = zero, dmu = zero;
        for (size_t v = 0; v < vectors; v++) {
            size_t at = j * c->cp + v * VECTOR_FLOATS;
            if ((v + 1) * VECTOR_FLOATS <= j) {
                v_store(g->dw + at, zero);
                v_store(g->dl + at, zero);
                continue;
            }
            vfloat ratio = v_load(c->ratio + at), dw = v_load(g->dw + at), y = dw * v_load(c->qk + at);
            v_store(g->dw + at, v_set(c->g[j]) * ratio * dw);
            if (reads) {
                const vint own = counted_from(v * VECTOR_FLOATS) == (int32_t)j;
                vfloat dl = v_select(own, zero, v_load(g->dl + at));
                y = v_fma(dl, v_load(c->kk + at), y);
                v_store(g->dl + at, v_set(c->g[j]) * ratio * dl);
            }
            dg = v_fma(ratio, y, dg);
            dmu = v_fma(ratio, paths[v], dmu);
            paths[v] = v_fma(v_set(c->mu[j]), paths[v], v_set(c->g[j]) * y);
        }
        v_store(dg_sums + j * VECTOR_FLOATS, dg);
        v_store(dmu_sums + j * VECTOR_FLOATS, dmu);
    }
    sum_vectors(g->dg, dg_sums, c->count);
    sum_vectors(g->dmu, dmu_sums, c->count);
    for (size_t j = 0; j < c->count; j++) {
        float rest = c->ratio[j * c->cp + last];
        g->dg[j] += rest * g->left[j];
        g->dmu[j] += rest * end;
        end = c->mu[j] * end + c->g[j] * g->left[j];
    }
}

void ISA_NAME(scan_slot_weights)(ScanChunk *c)
{
    const float *before = c->pairs;
    float *sum = c->sums;
    size_t mp = c->mp;
    for (size_t t = 0; t < c->count; t++) {
        float *pairs = scan_pairs(c, t);
        const float *q = c->q + t * mp, *alpha = c->alpha + t * mp;
        for (size_t j = 0; j < t; j++) {
            vfloat product = {0};
            for (size_t i = 0; i < mp; i += VECTOR_FLOATS) {
                vfloat k = v_load(alpha + i) * v_load(before + j * mp + i);
                v_store(pairs + j * mp + i, k);
                product = v_fma(v_load(q + i), k, product);
            }
            v_store(sum, product);
            sum += VECTOR_FLOATS;
        }
        vfloat product = {0};
        for (size_t i = 0; i < mp; i += VECTOR_FLOATS) {
            vfloat k = v_load(c->k + t * mp + i), own = v_load(alpha + i) * (t > 0 ? v_load(c->own + (t - 1) * mp + i) : v_set(1.0f));
            v_store(pairs + t * mp + i, k);
            product = v_fma(v_load(q + i), k, product);
            v_store(c->own + t * mp + i, own);
            v_store(c->read + t * mp + i, own * v_load(q + i));
        }
        v_store(sum, product);
        sum += VECTOR_FLOATS;
        before = pairs;
    }
    size_t last = c->count - 1;
    c->write = scan_pairs(c, last);
    c->keep = c->own + last * mp;
    sum_vectors(c->sums, c->sums, c->count * (c->count + 1) / 2);
    memset(c->w, 0, c->count * c->cp * sizeof(float));
    for (size_t t = 0, pair = 0; t < c->count; t++) {
        for (size_t j = 0; j <= t; j++, pair++) {
            c->w[j * c->cp + t] = c->sums[pair];
        }
    }
}

// dwrite_j holds the gradient into k_tj of the token t at hand, kept that into D_t.
void ISA_NAME(scan_slot_weights_backward)(ScanChunkGradient *g, const ScanChunk *c)
{
    size_t mp = c->mp, cp = c->cp;
    for (size_t t = c->count; t-- > 0;) {
        const float *pairs = scan_pairs(c, t), *before = t > 0 ? scan_pairs(c, t - 1) : pairs;
        for (size_t i = 0; i < mp; i += VECTOR_FLOATS) {
            size_t at = t * mp + i, rest = rest_of(c->m, i);
            vfloat q = v_load(c->q + at), alpha = v_load(c->alpha + at), dot = v_load(g->dot + at), own = v_load(c->own + at);
            vfloat kept = v_fma(q, dot, v_load(g->kept + i)), dq = own * dot;
            vfloat dalpha = kept * (t > 0 ? v_load(c->own + at - mp) : v_set(1.0f));
            for (size_t j = 0; j < t; j++) {
                vfloat weight = v_set(g->dw[j * cp + t]), dk = v_fma(weight, q, v_load(g->dwrite + j * mp + i));
                dq = v_fma(weight, v_load(pairs + j * mp + i), dq);
                dalpha = v_fma(dk, v_load(before + j * mp + i), dalpha);
                v_store(g->dwrite + j * mp + i, alpha * dk);
            }
            vfloat weight = v_set(g->dw[t * cp + t]);
            v_store(g->kept + i, alpha * kept);
            v_store_n(g->dq + t * g->row + i, v_fma(weight, v_load(c->k + at), dq), rest);
            v_store_n(g->dk + t * g->row + i, v_fma(weight, q, v_load(g->dwrite + at)), rest);
            v_store_n(g->dalpha + t * g->alpha_row + i, dalpha, rest);
        }
    }
}
