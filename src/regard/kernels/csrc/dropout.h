/* Dropout: the random bits of an element follow from its index and a seed, so that the backward pass can compute them again. See simd_instance.h
 * for the macros. */

/* Four elements share the 64 bits of a counter mixed as in splitmix64  (Steele, Lea and Flood 2014). */
TARGET static int NAME(drop)(const void *context, i64 begin, i64 end) {
    const drops *t = context;
    const REAL *x = t->x, scale = (REAL)t->scale;
    REAL *out = t->out;
    const INT least = (INT)t->least;
    for (i64 block = begin; block < end; block++) {
        const i64 first = block * 4 * DRAWS, n = t->n - first < 4 * DRAWS ? t->n - first : 4 * DRAWS;
        uint64_t words[DRAWS];
        uint16_t bits[4 * DRAWS];
        for (i64 j = 0; j < DRAWS; j++) {
            uint64_t z = t->seed + (uint64_t)(block * DRAWS + j + 1) * 0x9e3779b97f4a7c15u;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
            words[j] = z ^ (z >> 31);
        }
        memcpy(bits, words, sizeof bits);
        REAL keep[4 * DRAWS];
        for (i64 j = 0; j < 4 * DRAWS; j++) keep[j] = (INT)bits[j] < least ? 0 : scale;
        for (i64 j = 0; j < n; j++) out[first + j] = x[first + j] * keep[j];
    }
    return 0;
}
