/* One head of attention, twice: `naive` writes the scores of all queries and keys to memory, `blocked` keeps a running softmax
 * over tiles of keys and writes none. usage: attention naive|blocked TOKENS HEAD_DIM [QUERIES KEYS of a tile]
 * Everything is float, rows are HEAD_DIM wide. The last line is a checksum that both agree on.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *filled(size_t count, unsigned seed) {
    float *values = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    for (size_t at = 0; at < count; at++) {
        seed = seed * 1664525u + 1013904223u;
        values[at] = (float)(seed >> 8) / (1 << 24) - 0.5f;
    }
    return values;
}

static float dot(const float *a, const float *b, int width) {
    float sum = 0;
    for (int at = 0; at < width; at++) sum += a[at] * b[at];
    return sum;
}

__attribute__((noinline)) static void naive(const float *q, const float *k, const float *v, float *out, float *scores, int tokens, int width) {
    float scale = 1 / sqrtf((float)width);
    for (int row = 0; row < tokens; row++)
        for (int key = 0; key < tokens; key++)
            scores[(size_t)row * tokens + key] = scale * dot(q + (size_t)row * width, k + (size_t)key * width, width);
    for (int row = 0; row < tokens; row++) {
        float *line = scores + (size_t)row * tokens, most = line[0], sum = 0;
        for (int key = 1; key < tokens; key++) most = fmaxf(most, line[key]);
        for (int key = 0; key < tokens; key++) sum += line[key] = expf(line[key] - most);
        for (int key = 0; key < tokens; key++) line[key] /= sum;
    }
    for (int row = 0; row < tokens; row++)
        for (int key = 0; key < tokens; key++) {
            float weight = scores[(size_t)row * tokens + key];
            for (int at = 0; at < width; at++) out[(size_t)row * width + at] += weight * v[(size_t)key * width + at];
        }
}

__attribute__((noinline)) static void blocked(const float *q, const float *k, const float *v, float *out, int tokens, int width, int queries, int keys) {
    float scale = 1 / sqrtf((float)width), *most = malloc(queries * sizeof(float)), *sum = malloc(queries * sizeof(float));
    for (int first = 0; first < tokens; first += queries) {
        int rows = first + queries < tokens ? queries : tokens - first;
        for (int row = 0; row < rows; row++) most[row] = -INFINITY, sum[row] = 0;
        for (int start = 0; start < tokens; start += keys) {
            int end = start + keys < tokens ? start + keys : tokens;
            for (int row = 0; row < rows; row++) {
                const float *query = q + (size_t)(first + row) * width;
                float *to = out + (size_t)(first + row) * width;
                for (int key = start; key < end; key++) {
                    float score = scale * dot(query, k + (size_t)key * width, width);
                    if (score > most[row]) {
                        float shrink = expf(most[row] - score);
                        sum[row] *= shrink;
                        for (int at = 0; at < width; at++) to[at] *= shrink;
                        most[row] = score;
                    }
                    float weight = expf(score - most[row]);
                    sum[row] += weight;
                    for (int at = 0; at < width; at++) to[at] += weight * v[(size_t)key * width + at];
                }
            }
        }
        for (int row = 0; row < rows; row++)
            for (int at = 0; at < width; at++) out[(size_t)(first + row) * width + at] /= sum[row];
    }
    free(most);
    free(sum);
}

int main(int count, char **words) {
    if (count < 4) return fprintf(stderr, "usage: attention naive|blocked TOKENS HEAD_DIM [QUERIES KEYS]\n"), 2;
    int tokens = atoi(words[2]), width = atoi(words[3]);
    int queries = count > 4 ? atoi(words[4]) : 64, keys = count > 5 ? atoi(words[5]) : 64;
    size_t size = (size_t)tokens * width;
    float *q = filled(size, 1), *k = filled(size, 2), *v = filled(size, 3), *out = filled(size, 4);
    memset(out, 0, size * sizeof(float));
    if (strcmp(words[1], "naive") == 0)
        naive(q, k, v, out, aligned_alloc(64, ((size_t)tokens * tokens * sizeof(float) + 63) / 64 * 64), tokens, width);
    else
        blocked(q, k, v, out, tokens, width, queries, keys);
    double sum = 0;
    for (size_t at = 0; at < size; at++) sum += fabs(out[at]);
    return printf("%s tokens=%d head_dim=%d sum=%.4f\n", words[1], tokens, width, sum), 0;
}
