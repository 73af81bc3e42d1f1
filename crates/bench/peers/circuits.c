/* Runs a rule that `gatework export --to c` wrote on a grid and times it:
 *
 *     cc -O3 -march=native -fopenmp -DHEADER='"life.h"' -DLANES='"life_lanes.h"' -DRULE=life_rule -DSTEP=life_step \
 *        -DCHANNELS=1 -DTORUS=1 -DSIDE=4096 circuits.c -o life && ./life START AFTER STEPS TIMED_STEPS SECONDS
 *
 * The rule works on vectors of 256 bits (LANES is the rule with `lanes` instead of `uint64_t`, called RULE_lanes). Neighbouring
 * rows are shifted in advance, and OpenMP distributes rows among threads. This is many times faster than the step function of
 * the header, which handles one word at a time and is meant for embedding. Both must turn START into AFTER; the minimum time of
 * the timed steps on vectors is printed, in seconds.
 */
#include HEADER

/* Four words. */
typedef uint64_t lanes __attribute__((vector_size(32)));
#include LANES

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORDS = SIDE / 64, PLANE = SIDE * WORDS, BOARD = CHANNELS * PLANE };

/* The rows that are shifted together: small enough that they stay in the second-level cache. */
enum { BAND = 16 };

#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A row as seen by the cells to its right, at it and to its left: the neighbour at x - 1, x and x + 1 comes to x. */
static void shift(const uint64_t *row, uint64_t *restrict left, uint64_t *restrict middle, uint64_t *restrict right)
{
    uint64_t padded[WORDS + 2];
    memcpy(padded + 1, row, sizeof(uint64_t) * WORDS);
    padded[0] = TORUS ? row[WORDS - 1] : 0;
    padded[WORDS + 1] = TORUS ? row[0] : 0;
    for (int w = 0; w < WORDS; w++) {
        left[w] = padded[w + 1] << 1 | padded[w] >> 63;
        middle[w] = padded[w + 1];
        right[w] = padded[w + 1] >> 1 | padded[w + 2] << 63;
    }
}

/* One row of all channels; `seen` has nine rows for each channel, row by row of the neighbourhood. */
static void apply(uint64_t *seen[9 * CHANNELS], uint64_t *to[CHANNELS])
{
    for (int w = 0; w < WORDS; w += 4) {
        lanes in[9 * CHANNELS], out[CHANNELS];
        for (int k = 0; k < 9 * CHANNELS; k++)
            in[k] = *(const lanes *)(seen[k] + w);
        JOIN(RULE, _lanes)(in, out);
        for (int c = 0; c < CHANNELS; c++)
            *(lanes *)(to[c] + w) = out[c];
    }
}

static void step_by_rows(const uint64_t *from, uint64_t *next)
{
#pragma omp parallel for schedule(static)
    for (int band = 0; band < SIDE / BAND; band++) {
        /* [channel][row of the band and one on either side][left, middle, right][word] */
        static _Thread_local _Alignas(64) uint64_t shifted[CHANNELS][BAND + 2][3][WORDS];
        for (int c = 0; c < CHANNELS; c++)
            for (int r = 0; r < BAND + 2; r++) {
                int y = band * BAND + r - 1;
                uint64_t(*s)[WORDS] = shifted[c][r];
                if (!TORUS && (y < 0 || y >= SIDE))
                    memset(s, 0, sizeof shifted[c][r]);
                else
                    shift(from + c * PLANE + (y + SIDE) % SIDE * WORDS, s[0], s[1], s[2]);
            }
        for (int r = 0; r < BAND; r++) {
            uint64_t *seen[9 * CHANNELS], *to[CHANNELS];
            for (int c = 0; c < CHANNELS; c++) {
                for (int k = 0; k < 9; k++)
                    seen[9 * c + k] = shifted[c][r + k / 3][k % 3];
                to[c] = next + c * PLANE + (band * BAND + r) * WORDS;
            }
            apply(seen, to);
        }
    }
}

static void step_of_header(const uint64_t *from, uint64_t *next)
{
    STEP(from, next, SIDE, SIDE, TORUS);
}

static uint64_t *boards[2];

static void run(void (*step)(const uint64_t *, uint64_t *), int steps)
{
    for (int i = 0; i < steps; i++) {
        step(boards[0], boards[1]);
        uint64_t *t = boards[0];
        boards[0] = boards[1];
        boards[1] = t;
    }
}

static void load(const char *path, uint64_t *board)
{
    FILE *file = fopen(path, "rb");
    if (!file || fread(board, sizeof(uint64_t), BOARD, file) != BOARD) {
        fprintf(stderr, "%s is not the board\n", path);
        exit(1);
    }
    fclose(file);
}

int main(int count, char **words)
{
    if (count != 6)
        return 2;
    const int steps = atoi(words[3]), timed_steps = atoi(words[4]);
    const double seconds = atof(words[5]);
    void (*ways[2])(const uint64_t *, uint64_t *) = {step_by_rows, step_of_header};
    uint64_t *right = aligned_alloc(64, sizeof(uint64_t) * BOARD);
    double best = 1e300;
    for (int i = 0; i < 2; i++)
        boards[i] = aligned_alloc(64, sizeof(uint64_t) * BOARD);
    load(words[2], right);
    for (int way = 0; way < 2; way++) {
        load(words[1], boards[0]);
        run(ways[way], steps);
        if (memcmp(boards[0], right, sizeof(uint64_t) * BOARD) != 0) {
            fprintf(stderr, "wrong answer: way %d\n", way);
            return 1;
        }
    }
    const double begin = now();
    do {
        const double start = now();
        run(step_by_rows, timed_steps);
        const double time = now() - start;
        if (time < best)
            best = time;
    } while (now() - begin < seconds);
    printf("%.9f\n", best);
    return 0;
}
