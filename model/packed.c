#include "model/packed.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/progress.h"

struct PackedWeights {
    MatrixPlace *places;      // by rising offset
    PackedMatrix *matrices;   // of each place
    size_t count;
    char *memory;       // of all matrices
    size_t bytes;
};

static const char *const type_names[] = {[WEIGHTS_F32] = "f32", [WEIGHTS_BF16] = "bf16", [WEIGHTS_INT8] = "int8"};

const char *weight_type_name(WeightType type) { return type_names[type]; }

int weight_type_parse(WeightType *type, const char *name, Error *error)
{
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        if (strcmp(type_names[i], name) == 0) {
            *type = (WeightType)i;
            return 0;
        }
    }
    return error_set(error, "'%s' is unknown: there are f32, bf16 and int8", name);
}

// ---- layout ----

// The tensor that a float of the arena belongs to.
static const Tensor *tensor_at(const TensorTable *table, size_t offset)
{
    const Tensor *tensor = table->items;
    for (size_t i = 1; i < table->count && table->items[i].offset <= offset; i++) {
        tensor = &table->items[i];
    }
    return tensor;
}

static int list_matrices(PackedWeights *packed, const MatrixPlace *places, size_t count, const TensorTable *table, WeightType type, Error *error)
{
    packed->places = calloc(count + 1, sizeof *packed->places);
    packed->matrices = calloc(count + 1, sizeof *packed->matrices);
    if (packed->places == NULL || packed->matrices == NULL) {
        return error_set(error, "no memory for the list of the model's matrices");
    }
    for (size_t i = 0; i < count; i++) {
        const MatrixPlace *p = &places[i];
        assert(i == 0 || p->offset >= places[i - 1].offset + places[i - 1].n_out * places[i - 1].n_in);
        if (p->n_in > PACKED_MAX_IN) {
            return error_set(error, "%s has rows of %zu weights, more than the %d that %s weights allow: use --dtype f32", tensor_at(table, p->offset)->name,
                             p->n_in, PACKED_MAX_IN, type_names[type]);
        }
        size_t units = (p->n_in + PACKED_UNIT - 1) / PACKED_UNIT;
        packed->places[i] = *p;
        packed->matrices[i] = (PackedMatrix){.type = type, .n_out = p->n_out, .n_in = p->n_in, .lines = units * (PACKED_UNIT / packed_line_numbers(type))};
        packed->count++;
    }
    return 0;
}

// The next part of the memory, or NULL while only counting. The f32 arena is there and a row grows to at most 128 bytes, so sizes do not overflow.
static char *take(PackedWeights *packed, size_t bytes)
{
    size_t start = packed->bytes;
    packed->bytes = start + (bytes + PACKED_LINE - 1) / PACKED_LINE * PACKED_LINE;
    return packed->memory == NULL ? NULL : packed->memory + start;
}

static void place_matrices(PackedWeights *packed)
{
    packed->bytes = 0;
    for (size_t i = 0; i < packed->count; i++) {
        PackedMatrix *m = &packed->matrices[i];
        bool int8 = m->type == WEIGHTS_INT8;
        m->memory = take(packed, (m->n_out + PACKED_ROWS - 1) / PACKED_ROWS * PACKED_ROWS * m->lines * PACKED_LINE);
        m->scales = int8 ? (float *)(void *)take(packed, m->n_out * sizeof(float)) : NULL;
        m->sums = int8 ? (int32_t *)(void *)take(packed, m->n_out * sizeof(int32_t)) : NULL;
    }
}

// ---- conversion ----

// Rounded to nearest, ties to even; a NaN stays one.
static uint16_t bf16_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((isnan(x) ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static void pack_bf16_row(PackedMatrix *m, size_t row, const float *w)
{
    size_t numbers = packed_line_numbers(m->type);
    for (size_t k = 0; k < m->n_in; k++) {
        uint16_t bits = bf16_bits(w[k]);
        memcpy(packed_line(m, row, k / numbers) + k % numbers * sizeof bits, &bits, sizeof bits);
    }
}

// Returns false when a weight is not finite.
static bool pack_int8_row(PackedMatrix *m, size_t row, const float *w)
{
    float most = 0.0f, poison = 0.0f;
    for (size_t k = 0; k < m->n_in; k++) {
        most = fabsf(w[k]) > most ? fabsf(w[k]) : most;
        poison += w[k] * 0.0f;
    }
    if (poison != 0.0f) {
        return false;
    }
    float inverse = most > INT8_LEAST ? 127.0f / most : 0.0f;
    int32_t sum = 0;
    for (size_t k = 0; k < m->n_in; k++) {
        int8_t number = (int8_t)lrintf(w[k] * inverse);
        memcpy(packed_line(m, row, k / PACKED_LINE) + k % PACKED_LINE, &number, sizeof number);
        sum += number;
    }
    m->scales[row] = most / 127.0f;
    m->sums[row] = sum;
    return true;
}

// From the matrix in the arena.
static bool pack_matrix(PackedMatrix *m, const float *weights)
{
    bool finite = true;
#pragma omp parallel for schedule(static) reduction(&& : finite) if (m->n_out > 64)
    for (size_t row = 0; row < m->n_out; row++) {
        const float *w = weights + row * m->n_in;
        if (m->type == WEIGHTS_BF16) {
            pack_bf16_row(m, row, w);
        } else {
            finite = pack_int8_row(m, row, w) && finite;
        }
    }
    return finite;
}

static int refuse_weight(const float *params, const MatrixPlace *place, const TensorTable *table, Error *error)
{
    size_t i = 0;
    while (i + 1 < place->n_out * place->n_in && isfinite(params[place->offset + i])) {
        i++;
    }
    const Tensor *tensor = tensor_at(table, place->offset + i);
    return error_set(error, "%s: weight %zu is %s, which int8 cannot hold: the checkpoint is damaged or its training went wrong", tensor->name,
                     place->offset + i - tensor->offset, isnan(params[place->offset + i]) ? "NaN" : "infinite");
}

PackedWeights *packed_create(const float *params, const MatrixPlace *places, size_t count, const TensorTable *table, WeightType type, Error *error)
{
    assert(type == WEIGHTS_BF16 || type == WEIGHTS_INT8);
    PackedWeights *packed = calloc(1, sizeof *packed);
    if (packed == NULL) {
        error_set(error, "no memory for %s weights", type_names[type]);
        return NULL;
    }
    int result = list_matrices(packed, places, count, table, type, error);
    if (result == 0) {
        place_matrices(packed);
        packed->memory = memory_large(packed->bytes);
        if (packed->memory == NULL) {
            char size[32];
            result = error_set(error, "no memory for the model's weights in %s (%s)", type_names[type], format_bytes(size, (double)packed->bytes));
        }
    }
    if (result == 0) {
        place_matrices(packed);
        for (size_t i = 0; i < packed->count && result == 0; i++) {
            const MatrixPlace *place = &packed->places[i];
            result = pack_matrix(&packed->matrices[i], params + place->offset) ? 0 : refuse_weight(params, place, table, error);
        }
    }
    if (result != 0) {
        packed_free(packed);
        return NULL;
    }
    return packed;
}

void packed_free(PackedWeights *packed)
{
    if (packed != NULL) {
        free(packed->places);
        free(packed->matrices);
        free(packed->memory);
        free(packed);
    }
}

// ---- use ----

const PackedMatrix *packed_find(const PackedWeights *packed, size_t offset)
{
    size_t until = matrix_places_until(packed->places, packed->count, offset);
    return until > 0 && packed->places[until - 1].offset == offset ? &packed->matrices[until - 1] : NULL;
}

bool packed_holds(const PackedWeights *packed, size_t offset)
{
    size_t until = matrix_places_until(packed->places, packed->count, offset);
    const MatrixPlace *last = packed->places + (until > 0 ? until - 1 : 0);
    return until > 0 && offset - last->offset < last->n_out * last->n_in;
}

void packed_embedding(float *out, const PackedMatrix *table, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        packed_row(out + i * table->n_in, table, (size_t)ids[i], table->type == WEIGHTS_INT8 ? table->scales[ids[i]] : 1.0f);
    }
}

size_t packed_bytes(const PackedMatrix *matrix)
{
    return matrix->n_out * (matrix->lines * PACKED_LINE + (matrix->type == WEIGHTS_INT8 ? sizeof(float) + sizeof(int32_t) : 0));
}

size_t packed_total(const PackedWeights *packed, size_t *weights)
{
    size_t bytes = 0;
    *weights = 0;
    for (size_t i = 0; i < packed->count; i++) {
        bytes += packed_bytes(&packed->matrices[i]);
        *weights += packed->places[i].n_out * packed->places[i].n_in;
    }
    return bytes;
}
