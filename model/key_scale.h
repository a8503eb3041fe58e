// A learned factor of keys: after norm or softmax, each head's k is multiplied by a number, where a mixer writes by what it reads under the key. Elsewhere,
// and with queries everywhere, it would do nothing: a head's output is in proportion to them, and the norm behind it takes any factor away.
#ifndef MODEL_KEY_SCALE_H
#define MODEL_KEY_SCALE_H

#include <stddef.h>

typedef struct KeyScale {
    const float *scales;           // [H]
    size_t rows, n_head, n_slot;
    size_t stride;                 // floats from one row of keys to the next
} KeyScale;

// keys [rows, H, m] are multiplied in place.
void key_scale_forward(float *keys, const KeyScale *scale);

// dkeys, the gradient of the products, becomes that of the keys; `keys` are those before key_scale_forward. dscales [H] accumulates.
void key_scale_backward(float *dkeys, float *dscales, const float *keys, const KeyScale *scale);

#endif
