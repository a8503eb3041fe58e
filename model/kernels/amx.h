// AMX: eight registers of 16 rows of 64 bytes. One instruction adds to 16 × 16 sums the products of 16 rows and 16 columns of 16 pairs of bf16.
//
// A process asks for them at start (kernels.c), a thread says what they hold before it uses them.
#ifndef MODEL_KERNELS_AMX_H
#define MODEL_KERNELS_AMX_H

#include <stddef.h>
#include <stdint.h>

#define AMX_SIDE 16

// What the registers hold, as the processor wants to be told; all zeros: nothing.
typedef struct AmxShapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} AmxShapes;
_Static_assert(sizeof(AmxShapes) == 64, "its layout is the processor's");

#ifdef __AMX_BF16__
#include <immintrin.h>

// gcc does not know that these instructions read and write memory.
#define AMX_MEMORY() __asm__ volatile("" : : : "memory")

// before: what the thread's registers held until now. oneDNN, in the same thread, takes for granted that they still do when it comes again.
static inline void amx_begin(AmxShapes *before)
{
    AmxShapes shapes = {.palette = 1};
    for (size_t i = 0; i < 8; i++) {
        shapes.row_bytes[i] = AMX_SIDE * sizeof(float);
        shapes.rows[i] = AMX_SIDE;
    }
    AMX_MEMORY();
    _tile_storeconfig(before);
    _tile_loadconfig(&shapes);
    AMX_MEMORY();
}

static inline void amx_end(const AmxShapes *before)
{
    AMX_MEMORY();
    _tile_loadconfig(before);
}
#endif

#endif
