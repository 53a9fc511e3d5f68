/* What memory gives: reads of an array, reads of four rows side by side, copies, sums (a = b + s*c), and reads of ever larger arrays.
 * usage: bandwidth ceilings THREADS MEGABYTES REPETITIONS  |  bandwidth ladder REPETITIONS
 * Each line: what, bytes of an array, bytes per second. Counted are the bytes that the program asks for: a store reads nothing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { const char *what; double *a, *b, *c; size_t count; int turns; double seconds; pthread_barrier_t *start; } Part;
static volatile double kept;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}

static void once(const Part *part) {
    size_t count = part->count, quarter = count / 4;
    double *a = part->a, *b = part->b, *c = part->c, sums[4][8] = {{0}};
    switch (part->what[1]) {
    case 'e': /* read */
        for (size_t at = 0; at + 16 <= count; at += 16)
            for (int lane = 0; lane < 8; lane++) sums[0][lane] += a[at + lane], sums[1][lane] += a[at + 8 + lane];
        break;
    case 'i': /* side: four rows side by side */
        for (size_t at = 0; at + 8 <= quarter; at += 8)
            for (int lane = 0; lane < 8; lane++)
                for (int row = 0; row < 4; row++) sums[row][lane] += a[row * quarter + at + lane];
        break;
    case 'o': memcpy(a, b, count * sizeof(double)); break; /* copy */
    default:
        for (size_t at = 0; at < count; at++) a[at] = b[at] + 3.0 * c[at];
    }
    for (int lane = 0; lane < 8; lane++) kept = sums[0][lane] + sums[1][lane] + sums[2][lane] + sums[3][lane];
}

static void *work(void *given) {
    Part *part = given;
    once(part);
    pthread_barrier_wait(part->start);
    double began = now();
    for (int turn = 0; turn < part->turns; turn++) once(part);
    part->seconds = now() - began;
    return NULL;
}

static double rate(const char *what, size_t bytes, int threads, int turns) {
    int arrays = what[1] == 'e' || what[1] == 'i' ? 1 : what[1] == 'o' ? 2 : 3;
    size_t count = bytes / sizeof(double) / threads / 64 * 64;
    Part parts[threads];
    pthread_t running[threads];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, threads);
    for (int at = 0; at < threads; at++) {
        double *held[3] = {NULL, NULL, NULL};
        for (int array = 0; array < arrays; array++) {
            held[array] = aligned_alloc(4096, (count * sizeof(double) + 4095) / 4096 * 4096);
            for (size_t one = 0; one < count; one++) held[array][one] = 1.0;
        }
        parts[at] = (Part){what, held[0], held[1], held[2], count, turns, 0, &start};
        pthread_create(&running[at], NULL, work, &parts[at]);
    }
    double longest = 0;
    for (int at = 0; at < threads; at++) {
        pthread_join(running[at], NULL);
        if (parts[at].seconds > longest) longest = parts[at].seconds;
        free(parts[at].a), free(parts[at].b), free(parts[at].c);
    }
    return (double)arrays * count * sizeof(double) * threads * turns / longest;
}

int main(int count, char **words) {
    if (count > 4 && strcmp(words[1], "ceilings") == 0) {
        const char *known[] = {"read", "side", "copy", "sum"};
        int threads = atoi(words[2]), repetitions = atoi(words[4]);
        size_t bytes = (size_t)atoi(words[3]) << 20;
        for (int which = 0; which < 4; which++)
            for (int turn = 0; turn < repetitions; turn++)
                printf("%s %zu %.0f\n", known[which], bytes, rate(known[which], bytes, threads, 2));
        return 0;
    }
    if (count > 2 && strcmp(words[1], "ladder") == 0) {
        for (size_t bytes = 16 << 10; bytes <= (size_t)256 << 20; bytes *= 2)
            for (int turn = 0; turn < atoi(words[2]); turn++)
                printf("read %zu %.0f\n", bytes, rate("read", bytes, 1, (int)(((size_t)64 << 20) / bytes) + 1));
        return 0;
    }
    return fprintf(stderr, "usage: bandwidth ceilings THREADS MEGABYTES REPETITIONS | bandwidth ladder REPETITIONS\n"), 2;
}
