// mqar_report: tables and a chart from the rows that mqar has written (main).
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/plot.h"
#include "experiments/recall_rows.h"

// A mixer in a setting at one learning rate: its seeds.
typedef struct Cell {
    const RecallRow *first;
    double sum, least, most, steps, seconds;
    int64_t seeds;
} Cell;

typedef struct Cells {
    Cell *items;
    size_t count;
} Cells;

static double mean(const Cell *cell) { return cell->sum / (double)cell->seeds; }

static bool same_mixer(const RecallRow *a, const RecallRow *b) { return strcmp(a->mixer, b->mixer) == 0 && recall_rows_same_setting(a, b); }

static Cell *cell_of(Cells *cells, const RecallRow *row)
{
    for (size_t i = 0; i < cells->count; i++) {
        if (same_mixer(cells->items[i].first, row) && cells->items[i].first->lr == row->lr) {
            return &cells->items[i];
        }
    }
    cells->items[cells->count] = (Cell){.first = row, .least = INFINITY, .most = -INFINITY};
    return &cells->items[cells->count++];
}

// `cells` receives at most as many as there are rows.
static void collect(Cells *cells, const RecallRows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        Cell *cell = cell_of(cells, &rows->items[i]);
        double accuracy = rows->items[i].accuracy;
        cell->sum += accuracy;
        cell->least = fmin(cell->least, accuracy);
        cell->most = fmax(cell->most, accuracy);
        cell->steps += (double)rows->items[i].steps_run;
        cell->seconds += rows->items[i].seconds;
        cell->seeds++;
    }
}

// Whether no other rate of the same mixer in the same setting does better; of equals the first in the file counts.
static bool is_best(const Cells *cells, size_t i)
{
    for (size_t j = 0; j < cells->count; j++) {
        double other = mean(&cells->items[j]), own = mean(&cells->items[i]);
        if (same_mixer(cells->items[i].first, cells->items[j].first) && (other > own || (other == own && j < i))) {
            return false;
        }
    }
    return true;
}

// Settings by size, then the best first.
static int compare_cells(const void *a, const void *b)
{
    const Cell *x = *(const Cell *const *)a, *y = *(const Cell *const *)b;
    const int64_t keys[][2] = {{x->first->length, y->first->length}, {x->first->pairs, y->first->pairs}, {x->first->vocab, y->first->vocab},
                               {x->first->d_model, y->first->d_model}, {x->first->d_head, y->first->d_head}, {x->first->n_slot, y->first->n_slot},
                               {x->first->steps, y->first->steps}, {x->first->batch, y->first->batch}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (keys[i][0] != keys[i][1]) {
            return keys[i][0] < keys[i][1] ? -1 : 1;
        }
    }
    return mean(x) != mean(y) ? (mean(x) > mean(y) ? -1 : 1) : strcmp(x->first->mixer, y->first->mixer);
}

static void print_heading(const RecallRow *row)
{
    printf("\n### %" PRId64 " pairs in %" PRId64 " tokens\n\n", row->pairs, row->length);
    printf("Vocabulary %" PRId64 ", width %" PRId64 ", slots of %" PRId64 " numbers: %" PRId64 "; at most %" PRId64 " steps of %" PRId64 " sequences.\n\n",
           row->vocab, row->d_model, row->d_head, row->n_slot, row->steps, row->batch);
    printf("| mixer | state | parameters | best lr | accuracy | least | most | seeds | steps | CPU seconds | at other rates |\n");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
}

static void print_row(const Cell *cell, const Cells *cells)
{
    const RecallRow *row = cell->first;
    bool any = false;
    printf("| %s | %" PRId64 " | %" PRId64 " | %g | %.3f | %.3f | %.3f | %" PRId64 " | %.0f | %.0f |", row->mixer, row->state, row->parameters, row->lr,
           mean(cell), cell->least, cell->most, cell->seeds, cell->steps / (double)cell->seeds, cell->seconds / (double)cell->seeds);
    for (size_t i = 0; i < cells->count; i++) {
        const Cell *other = &cells->items[i];
        if (same_mixer(row, other->first) && other->first->lr != row->lr) {
            printf("%s %g: %.3f", any ? "," : "", other->first->lr, mean(other));
            any = true;
        }
    }
    printf(" |\n");
}

static void print_tables(Cell *const *best, size_t n_best, const Cells *cells)
{
    for (size_t i = 0; i < n_best; i++) {
        if (i == 0 || !recall_rows_same_setting(best[i - 1]->first, best[i]->first)) {
            print_heading(best[i]->first);
        }
        print_row(best[i], cells);
    }
}

// Whether a mixer was run at the same number of pairs in sequences of several lengths.
static bool has_lengths(Cell *const *best, size_t n_best)
{
    for (size_t i = 0; i < n_best; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(best[i]->first->mixer, best[j]->first->mixer) == 0 && best[i]->first->pairs == best[j]->first->pairs &&
                best[i]->first->length != best[j]->first->length) {
                return true;
            }
        }
    }
    return false;
}

// One line a mixer over the pairs, or where lengths differ one a mixer and length; best is in the order of lengths, then of pairs.
static int write_chart(Cell *const *best, size_t n_best, const char *path, Error *error)
{
    PlotSeries *series = calloc(n_best, sizeof *series);
    double *x = calloc(n_best * n_best, sizeof *x), *y = calloc(n_best * n_best, sizeof *y);
    char(*names)[ROW_MIXER_BYTES + 32] = calloc(n_best, sizeof *names);
    bool lengths = has_lengths(best, n_best);
    Plot plot = {"Multi-query recall: share answered at the best learning rate", "pairs of key and value", "accuracy, mean of the seeds", series, 0};
    int result = series == NULL || x == NULL || y == NULL || names == NULL ? error_set(error, "out of memory for the chart %s", path) : 0;
    for (size_t i = 0; i < n_best && result == 0; i++) {
        char name[ROW_MIXER_BYTES + 32];
        size_t s = 0;
        int used = snprintf(name, sizeof name, "%s", best[i]->first->mixer);
        if (lengths) {
            snprintf(name + used, sizeof name - (size_t)used, ", %" PRId64 " tokens", best[i]->first->length);
        }
        while (s < plot.n_series && strcmp(names[s], name) != 0) {
            s++;
        }
        if (s == plot.n_series) {
            memcpy(names[s], name, sizeof name);
            series[plot.n_series++] = (PlotSeries){names[s], x + s * n_best, y + s * n_best, 0};
        }
        x[s * n_best + series[s].count] = (double)best[i]->first->pairs;
        y[s * n_best + series[s].count++] = mean(best[i]);
    }
    result = result == 0 ? plot_write_png(&plot, path, error) : result;
    free(series);
    free(x);
    free(y);
    free(names);
    return result;
}

static int report(const RecallRows *rows, const char *plot, Error *error)
{
    Cells cells = {.items = calloc(rows->count, sizeof *cells.items)};
    Cell **best = calloc(rows->count, sizeof(Cell *));
    int result = cells.items == NULL || best == NULL ? error_set(error, "out of memory") : 0;
    if (result == 0) {
        size_t n_best = 0;
        collect(&cells, rows);
        for (size_t i = 0; i < cells.count; i++) {
            if (is_best(&cells, i)) {
                best[n_best++] = &cells.items[i];
            }
        }
        qsort(best, n_best, sizeof(Cell *), compare_cells);
        print_tables(best, n_best, &cells);
        result = plot != NULL ? write_chart(best, n_best, plot, error) : 0;
    }
    free(cells.items);
    free(best);
    return result != 0 || fflush(stdout) == 0 ? result : error_set(error, "cannot write to standard output");
}

int main(int argc, char **argv)
{
    const char *plot = NULL;
    ArgSpec specs[] = {{.name = "plot", .kind = ARG_STRING, .target = &plot, .value = "FILE.png", .help = "draw accuracy against pairs"}};
    ArgProgram program = {
        .name = "mqar_report",
        .usage = "ROWS.csv [--plot FILE.png]",
        .description = "Prints tables (Markdown) of what mqar has written: each mixer at the learning rate whose mean over the seeds is best.",
        .specs = specs,
        .n_specs = sizeof specs / sizeof specs[0],
        .min_positional = 1,
        .max_positional = 1,
    };
    size_t n_positional;
    args_parse(&program, argc, argv, &n_positional);
    Error error;
    RecallRows rows;
    if (recall_rows_read(&rows, argv[1], &error) != 0) {
        return args_fail(&error);
    }
    int result = rows.count == 0 ? error_set(&error, "%s: there are no rows: run scripts/mqar first", argv[1]) : report(&rows, plot, &error);
    recall_rows_free(&rows);
    return result == 0 ? 0 : args_fail(&error);
}
