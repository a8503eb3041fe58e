#include "base/plot.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
// The headers are others' code: their unused functions and old-style C are not ours to warn about.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <stb/stb_easy_font.h>
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

#include "base/file.h"

enum {
    WIDTH = 1200, HEIGHT = 720,
    LEFT = 120, RIGHT = 1160, TOP = 84, BOTTOM = 620,   // the plot's frame
    MAX_TEXT = 100,      // characters of a label that are drawn
    VERTEX_BYTES = 16,   // stb_easy_font: x, y, z as floats and a colour
};

typedef struct Colour {
    float r, g, b;
} Colour;

static const Colour INK = {0.16f, 0.18f, 0.22f}, FAINT = {0.45f, 0.48f, 0.53f}, GRID = {0.90f, 0.91f, 0.93f}, FRAME = {0.60f, 0.63f, 0.67f};
static const Colour PALETTE[] = {{0.10f, 0.40f, 0.75f}, {0.90f, 0.45f, 0.10f}, {0.15f, 0.60f, 0.35f}, {0.60f, 0.30f, 0.65f},
                                 {0.80f, 0.15f, 0.20f}, {0.10f, 0.65f, 0.70f}, {0.55f, 0.40f, 0.25f}, {0.90f, 0.45f, 0.65f},
                                 {0.40f, 0.42f, 0.46f}, {0.70f, 0.65f, 0.10f}, {0.35f, 0.75f, 0.95f}, {0.20f, 0.20f, 0.45f}};

typedef struct Canvas {
    float *pixels;   // [HEIGHT, WIDTH, 3]
} Canvas;

static void blend(Canvas *canvas, int x, int y, Colour colour, float coverage)
{
    if (x < 0 || y < 0 || x >= WIDTH || y >= HEIGHT || coverage <= 0.0f) {
        return;
    }
    float *pixel = canvas->pixels + ((size_t)y * WIDTH + (size_t)x) * 3;
    pixel[0] += (colour.r - pixel[0]) * coverage;
    pixel[1] += (colour.g - pixel[1]) * coverage;
    pixel[2] += (colour.b - pixel[2]) * coverage;
}

static void fill_rectangle(Canvas *canvas, double x0, double y0, double x1, double y1, Colour colour)
{
    for (int y = (int)lround(y0); y < (int)lround(y1); y++) {
        for (int x = (int)lround(x0); x < (int)lround(x1); x++) {
            blend(canvas, x, y, colour, 1.0f);
        }
    }
}

// A stroke with round ends; both ends equal: a disc. Coverage falls over one pixel at the edge, which makes it smooth.
static void draw_stroke(Canvas *canvas, double x0, double y0, double x1, double y1, double width, Colour colour)
{
    double dx = x1 - x0, dy = y1 - y0, squared = dx * dx + dy * dy, reach = width / 2 + 1;
    int left = (int)floor(fmin(x0, x1) - reach), right = (int)ceil(fmax(x0, x1) + reach);
    int top = (int)floor(fmin(y0, y1) - reach), bottom = (int)ceil(fmax(y0, y1) + reach);
    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            double px = x + 0.5 - x0, py = y + 0.5 - y0;
            double along = squared > 0.0 ? fmin(fmax((px * dx + py * dy) / squared, 0.0), 1.0) : 0.0;
            double distance = hypot(px - along * dx, py - along * dy);
            blend(canvas, x, y, colour, (float)fmin(fmax(width / 2 + 0.5 - distance, 0.0), 1.0));
        }
    }
}

// The font has glyphs for printable ASCII alone and reads outside its table for others.
static void clean_text(char out[MAX_TEXT + 1], const char *text)
{
    size_t n = 0;
    for (; n < MAX_TEXT && text[n] != '\0'; n++) {
        out[n] = text[n] >= 32 && text[n] < 127 ? text[n] : '?';
    }
    out[n] = '\0';
}

static double text_width(const char *text, double scale)
{
    char clean[MAX_TEXT + 1];
    clean_text(clean, text);
    return stb_easy_font_width(clean) * scale;
}

// Left end and top of the text; `upwards` turns it by a quarter, (x, y) then being left and bottom.
static void draw_text(Canvas *canvas, double x, double y, const char *text, double scale, bool upwards, Colour colour)
{
    char clean[MAX_TEXT + 1], vertices[MAX_TEXT * 300];
    clean_text(clean, text);
    int quads = stb_easy_font_print(0, 0, clean, NULL, vertices, (int)sizeof vertices);
    for (int i = 0; i < quads; i++) {
        float a[2], b[2];   // two opposite corners
        memcpy(a, vertices + (size_t)i * 4 * VERTEX_BYTES, sizeof a);
        memcpy(b, vertices + ((size_t)i * 4 + 2) * VERTEX_BYTES, sizeof b);
        if (upwards) {
            fill_rectangle(canvas, x + a[1] * scale, y - b[0] * scale, x + b[1] * scale, y - a[0] * scale, colour);
        } else {
            fill_rectangle(canvas, x + a[0] * scale, y + a[1] * scale, x + b[0] * scale, y + b[1] * scale, colour);
        }
    }
}

typedef struct Axes {
    double x_min, x_max;   // of log2 x
    double y_min, y_max, y_step;
} Axes;

static bool usable(const PlotSeries *series, size_t i) { return series->x[i] > 0.0 && isfinite(series->x[i]) && isfinite(series->y[i]); }

// 1, 2 or 5 times a power of ten, so that about five steps fill the range.
static double nice_step(double range)
{
    double power = pow(10.0, floor(log10(range / 5.0))), ratio = range / 5.0 / power;
    return power * (ratio < 1.5 ? 1.0 : ratio < 3.5 ? 2.0 : ratio < 7.5 ? 5.0 : 10.0);
}

// Where the legend's lines begin.
static double legend_left(const Plot *plot)
{
    double widest = 0.0;
    for (size_t s = 0; s < plot->n_series; s++) {
        widest = fmax(widest, text_width(plot->series[s].name, 2));
    }
    return RIGHT - widest - 62;
}

static int find_axes(Axes *axes, const Plot *plot)
{
    *axes = (Axes){INFINITY, -INFINITY, INFINITY, -INFINITY, 1.0};
    for (size_t s = 0; s < plot->n_series; s++) {
        for (size_t i = 0; i < plot->series[s].count; i++) {
            if (usable(&plot->series[s], i)) {
                axes->x_min = fmin(axes->x_min, log2(plot->series[s].x[i]));
                axes->x_max = fmax(axes->x_max, log2(plot->series[s].x[i]));
                axes->y_min = fmin(axes->y_min, plot->series[s].y[i]);
                axes->y_max = fmax(axes->y_max, plot->series[s].y[i]);
            }
        }
    }
    if (!(axes->x_max >= axes->x_min)) {
        return -1;
    }
    axes->x_min = floor(axes->x_min + 1e-9) - 0.25;
    axes->x_max = ceil(axes->x_max - 1e-9) + 0.25;
    if (plot->n_series > 4) {   // a long legend gets room beside the lines
        double share = fmin(0.7, (RIGHT - legend_left(plot) + 25.0) / (RIGHT - LEFT));
        axes->x_max += share / (1.0 - share) * (axes->x_max - axes->x_min);
    }
    double range = axes->y_max - axes->y_min, least = fmax(fabs(axes->y_max) * 0.02, 1e-6);
    axes->y_step = nice_step(fmax(range, least) * 1.2);
    double below = axes->y_min - 0.05 * range;   // what is never negative has no axis below 0
    axes->y_min = axes->y_min >= 0.0 && below < 0.0 ? 0.0 : floor(below / axes->y_step) * axes->y_step;
    axes->y_max = ceil((axes->y_max + 0.05 * range) / axes->y_step) * axes->y_step;
    if (axes->y_max - axes->y_min < axes->y_step * 1.5) {   // one level line: keep it off the frame
        axes->y_min = axes->y_min >= 0.0 ? fmax(axes->y_min - axes->y_step, 0.0) : axes->y_min - axes->y_step;
        axes->y_max += axes->y_step;
    }
    return 0;
}

static double place_x(const Axes *axes, double log_x)
{
    return LEFT + (log_x - axes->x_min) / (axes->x_max - axes->x_min) * (RIGHT - LEFT);
}

static double place_y(const Axes *axes, double y) { return BOTTOM - (y - axes->y_min) / (axes->y_max - axes->y_min) * (BOTTOM - TOP); }

static void draw_axes(Canvas *canvas, const Axes *axes, const Plot *plot)
{
    char label[48];
    int n_powers = (int)(floor(axes->x_max) - ceil(axes->x_min)) + 1, skip = 1 + (n_powers - 1) / 14;
    for (int i = 0; i < n_powers; i += skip) {
        double power = ceil(axes->x_min) + i, value = exp2(power), x = place_x(axes, power);
        fill_rectangle(canvas, x, TOP, x + 1, BOTTOM, GRID);
        fill_rectangle(canvas, x, BOTTOM, x + 1, BOTTOM + 7, FRAME);
        if (value >= 1048576.0) {
            snprintf(label, sizeof label, "%gM", value / 1048576.0);
        } else if (value >= 1024.0) {
            snprintf(label, sizeof label, "%gk", value / 1024.0);
        } else {
            snprintf(label, sizeof label, "%g", value);
        }
        draw_text(canvas, x - text_width(label, 2) / 2, BOTTOM + 14, label, 2, false, INK);
    }
    int n_steps = (int)lround((axes->y_max - axes->y_min) / axes->y_step);
    for (int i = 0; i <= n_steps; i++) {
        double value = axes->y_min + i * axes->y_step, y = place_y(axes, value);
        fill_rectangle(canvas, LEFT, y, RIGHT, y + 1, GRID);
        fill_rectangle(canvas, LEFT - 7, y, LEFT, y + 1, FRAME);
        snprintf(label, sizeof label, "%.6g", fabs(value) < axes->y_step * 1e-6 ? 0.0 : value);
        draw_text(canvas, LEFT - 14 - text_width(label, 2), y - 7, label, 2, false, INK);
    }
    fill_rectangle(canvas, LEFT, TOP, LEFT + 1, BOTTOM, FRAME);
    fill_rectangle(canvas, LEFT, BOTTOM, RIGHT, BOTTOM + 1, FRAME);
    draw_text(canvas, LEFT, 28, plot->title, 3, false, INK);
    draw_text(canvas, (LEFT + RIGHT) / 2.0 - text_width(plot->x_label, 2) / 2, BOTTOM + 52, plot->x_label, 2, false, FAINT);
    draw_text(canvas, 20, (TOP + BOTTOM) / 2.0 + text_width(plot->y_label, 2) / 2, plot->y_label, 2, true, FAINT);
}

// A line's look: colours come round, and then what is drawn is hollow and dashed.
typedef struct Look {
    Colour colour;
    bool second;
} Look;

static Look look_of(size_t series)
{
    size_t n = sizeof PALETTE / sizeof PALETTE[0];
    return (Look){PALETTE[series % n], series / n % 2 == 1};
}

static void draw_line(Canvas *canvas, double x0, double y0, double x1, double y1, Look look)
{
    double length = hypot(x1 - x0, y1 - y0), dash = look.second ? 12.0 : fmax(length, 1.0);
    for (int i = 0; 2.0 * dash * i < length; i++) {
        double at = 2.0 * dash * i, from = at / length, to = fmin(at + dash, length) / length;
        draw_stroke(canvas, x0 + from * (x1 - x0), y0 + from * (y1 - y0), x0 + to * (x1 - x0), y0 + to * (y1 - y0), 3.0, look.colour);
    }
}

static void draw_point(Canvas *canvas, double x, double y, Look look)
{
    draw_stroke(canvas, x, y, x, y, 8.0, look.colour);
    if (look.second) {
        draw_stroke(canvas, x, y, x, y, 4.0, (Colour){1.0f, 1.0f, 1.0f});
    }
}

static void draw_series(Canvas *canvas, const Axes *axes, const PlotSeries *series, Look look)
{
    bool has_last = false;
    double last_x = 0.0, last_y = 0.0;
    for (size_t i = 0; i < series->count; i++) {
        if (!usable(series, i)) {
            continue;
        }
        double x = place_x(axes, log2(series->x[i])), y = place_y(axes, series->y[i]);
        if (has_last) {
            draw_line(canvas, last_x, last_y, x, y, look);
        }
        has_last = true;
        last_x = x;
        last_y = y;
    }
    for (size_t i = 0; i < series->count; i++) {
        if (usable(series, i)) {
            double x = place_x(axes, log2(series->x[i])), y = place_y(axes, series->y[i]);
            draw_stroke(canvas, x, y, x, y, 12.0, (Colour){1.0f, 1.0f, 1.0f});
            draw_point(canvas, x, y, look);
        }
    }
}

static void draw_legend(Canvas *canvas, const Plot *plot)
{
    double step = fmin(28.0, (BOTTOM - TOP - 20.0) / (double)plot->n_series), left = legend_left(plot), bottom = TOP + 18 + step * (double)plot->n_series;
    fill_rectangle(canvas, left - 13, TOP + 5, RIGHT - 5, bottom + 1, GRID);
    fill_rectangle(canvas, left - 12, TOP + 6, RIGHT - 6, bottom, (Colour){1.0f, 1.0f, 1.0f});
    for (size_t s = 0; s < plot->n_series; s++) {
        double y = TOP + 26 + step * (double)s;
        draw_line(canvas, left, y, left + 32, y, look_of(s));
        draw_point(canvas, left + 16, y, look_of(s));
        draw_text(canvas, left + 44, y - 7, plot->series[s].name, 2, false, INK);
    }
}

typedef struct Bytes {
    unsigned char *data;
    size_t size;
    bool failed;
} Bytes;

static void collect_bytes(void *context, void *data, int size)
{
    Bytes *bytes = context;
    unsigned char *grown = realloc(bytes->data, bytes->size + (size_t)size + 1);
    if (grown == NULL) {
        bytes->failed = true;
        return;
    }
    memcpy(grown + bytes->size, data, (size_t)size);
    bytes->data = grown;
    bytes->size += (size_t)size;
}

static int write_canvas(const Canvas *canvas, const char *path, Error *error)
{
    size_t count = (size_t)WIDTH * HEIGHT * 3;
    unsigned char *rgb = malloc(count);
    if (rgb == NULL) {
        return error_set(error, "out of memory for the chart %s", path);
    }
    for (size_t i = 0; i < count; i++) {
        rgb[i] = (unsigned char)lrintf(canvas->pixels[i] * 255.0f);
    }
    Bytes png = {0};
    int result = 0;
    if (stbi_write_png_to_func(collect_bytes, &png, WIDTH, HEIGHT, 3, rgb, WIDTH * 3) == 0 || png.failed) {
        result = error_set(error, "out of memory for the chart %s", path);
    } else {
        result = file_write_atomic(path, png.data, png.size, error);
    }
    free(png.data);
    free(rgb);
    return result;
}

int plot_write_png(const Plot *plot, const char *path, Error *error)
{
    Axes axes;
    if (find_axes(&axes, plot) != 0) {
        return error_set(error, "%s: there is no point to draw", path);
    }
    size_t count = (size_t)WIDTH * HEIGHT * 3;
    Canvas canvas = {malloc(count * sizeof(float))};
    if (canvas.pixels == NULL) {
        return error_set(error, "out of memory for the chart %s", path);
    }
    for (size_t i = 0; i < count; i++) {
        canvas.pixels[i] = 1.0f;
    }
    draw_axes(&canvas, &axes, plot);
    for (size_t s = plot->n_series; s-- > 0;) {
        draw_series(&canvas, &axes, &plot->series[s], look_of(s));
    }
    draw_legend(&canvas, plot);
    int result = write_canvas(&canvas, path, error);
    free(canvas.pixels);
    return result;
}
