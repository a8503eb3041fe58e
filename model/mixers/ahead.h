// Memory that is needed soon, asked for while something else is done.
#ifndef MODEL_MIXERS_AHEAD_H
#define MODEL_MIXERS_AHEAD_H

#include "model/mixers/slots.h"

// A core has a dozen or so buffers for lines on their way: asked for all at once, rows hold up what is being done, and so products ask for a line in every
// so many of their steps. A chunk's products have about four times as many steps as it has lines.
#define ASK_STEPS 4
#define AHEAD_MOST 8

// `count` rows of `lines` lines, `row` floats apart.
typedef struct AheadRows {
    const float *at;
    size_t row, lines, count;
} AheadRows;

// The next line, and how many are left of its row.
typedef struct AheadLine {
    const float *at;
    size_t left;
} AheadLine;

typedef struct Ahead {
    AheadRows list[AHEAD_MOST];
    size_t n;              // of the list
    size_t place, rows;    // rows that are being asked for, and how many of them are left
    AheadLine line;
} Ahead;

// Adds rows [count, n] to a list that has not begun; the AHEAD_MOST-th and later ones are left to the processor.
INLINE void add_ahead(Ahead *ahead, const float *rows, size_t row, size_t n, size_t count)
{
    if (count > 0 && n > 0 && ahead->n < AHEAD_MOST - 1) {
        ahead->list[ahead->n++] = (AheadRows){rows, row, (n + LINE_FLOATS - 1) / LINE_FLOATS, count};
    }
}

// Adds part `place` of `parts` of n floats that lie one behind the other.
INLINE void add_part(Ahead *ahead, const float *memory, size_t n, size_t place, size_t parts)
{
    size_t begin = place * n / parts;
    add_ahead(ahead, memory + begin, 0, (place + 1) * n / parts - begin, 1);
}

INLINE AheadLine first_line(Ahead *ahead)
{
    const AheadRows *now = &ahead->list[ahead->place];
    ahead->rows = now->count;
    return (AheadLine){now->at, now->lines};
}

// Begins the list; behind its end `near`, a line that is at hand, is asked for again and again.
INLINE void begin_ahead(Ahead *ahead, const float *near)
{
    ahead->list[ahead->n] = (AheadRows){near, 0, 1, SIZE_MAX};
    ahead->place = 0;
    ahead->line = first_line(ahead);
}

// line: ahead->line, or for a loop a copy of it, which stays in registers.
INLINE void ask_line(AheadLine *line, Ahead *ahead)
{
    __builtin_prefetch(line->at, 0, 2);
    line->at += LINE_FLOATS;
    if (--line->left == 0) {
        const AheadRows *now = &ahead->list[ahead->place];
        line->at += (ptrdiff_t)now->row - (ptrdiff_t)(now->lines * LINE_FLOATS);
        line->left = now->lines;
        if (--ahead->rows == 0) {
            ahead->place++;
            *line = first_line(ahead);
        }
    }
}

// Asks for all that is left.
INLINE void ask_rest(Ahead *ahead)
{
    while (ahead->place < ahead->n) {
        ask_line(&ahead->line, ahead);
    }
}

#endif
