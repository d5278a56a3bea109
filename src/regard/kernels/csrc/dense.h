/* Products W x + b of weights (out, in), read where they are, with few or many rows of x. See simd_instance.h for the macros.
 *
 * Few rows: x is (rows, in), one dot product per row and output, and each weight is read once for all rows. Many rows: x is in panels of 2 LANES
 * rows, feature i of row r at (r / p) p in + i p + r % p with p = 2 LANES, and a product is one chain of sums over the features per lane. */

#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define UNROLLED _Pragma("GCC unroll 32")
#else
#define UNROLLED
#endif
#if X86 && LEVEL == 2 && DOUBLE
#define SUM(x) ((REAL)_mm512_reduce_add_pd((__m512d)(x)))
#elif X86 && LEVEL == 2
#define SUM(x) ((REAL)_mm512_reduce_add_ps((__m512)(x)))
#elif X86 && LEVEL == 1 && DOUBLE
#define SUM(x) NAME(add_lanes)(x)
TARGET static INLINE REAL NAME(add_lanes)(VEC x) {
    const __m128d half = _mm_add_pd(_mm256_castpd256_pd128((__m256d)x), _mm256_extractf128_pd((__m256d)x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}
#elif X86 && LEVEL == 1
#define SUM(x) NAME(add_lanes)(x)
TARGET static INLINE REAL NAME(add_lanes)(VEC x) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
#else
#define SUM(x) NAME(total)(x)
#endif

/* the sums of four vectors at once */
#if X86 && LEVEL && !DOUBLE
TARGET static INLINE void NAME(sum_four)(VEC a, VEC b, VEC c, VEC d, REAL *to) {
#if LEVEL == 2
#define HALVES(x) _mm256_add_ps(_mm512_castps512_ps256((__m512)(x)), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)(x)), 1)))
#else
#define HALVES(x) ((__m256)(x))
#endif
    const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(HALVES(a), HALVES(b)), _mm256_hadd_ps(HALVES(c), HALVES(d)));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
#undef HALVES
}
#else
TARGET static INLINE void NAME(sum_four)(VEC a, VEC b, VEC c, VEC d, REAL *to) { to[0] = SUM(a), to[1] = SUM(b), to[2] = SUM(c), to[3] = SUM(d); }
#endif

/* products of `words` rows of weights and `vectors` LANES of x; both are constants where this is inlined */
TARGET static INLINE void NAME(multiply)(const REAL *const *w, const REAL *x, i64 d, const int words, const int vectors, VEC *c) {
    VEC sums[2 * WORDS];
    for (int i = 0; i < words * vectors; i++) sums[i] = ALL(0);
#if defined(__clang__)
#pragma clang loop unroll_count(2)
#elif defined(__GNUC__)
#pragma GCC unroll 2
#endif
    for (i64 j = 0; j < d; j++) {
        const VEC x0 = LOAD(x + j * 2 * LANES), x1 = vectors > 1 ? LOAD(x + j * 2 * LANES + LANES) : x0;
#if defined(__clang__)
#pragma clang loop unroll(full)
#elif defined(__GNUC__)
#pragma GCC unroll 12
#endif
        for (int i = 0; i < words; i++) {
            const REAL y = w[i][j];
            sums[i * vectors] += y * x0;
            if (vectors > 1) sums[i * vectors + 1] += y * x1;
        }
    }
    for (int i = 0; i < words * vectors; i++) c[i] = sums[i];
}

/* what becomes of a product: it replaces y, is added to it, or replaces it by max(0, product) */
TARGET static INLINE REAL NAME(placed)(REAL product, REAL before, const int mode) {
    return mode == DENSE_ADD ? before + product : mode == DENSE_RELU && product < 0 ? 0 : product;
}

/* y = W x + b for up to FEW rows; `rows` and `outs` are constants where this is inlined */
TARGET static INLINE void NAME(dense_few)(const REAL *w, const REAL *b, i64 out, i64 in, const REAL *x, REAL *y, const int rows, const int outs,
                                          const int mode) {
    const i64 whole = in / LANES * LANES;
    for (i64 o = 0; o < out; o += outs) {
        const int some = out - o < outs ? (int)(out - o) : outs;
        const REAL *weight[8];
        VEC sums[FEW * 4 + 8];
UNROLLED
        for (int k = 0; k < outs; k++) weight[k] = w + (o + (k < some ? k : some - 1)) * in;
UNROLLED
        for (int k = 0; k < rows * outs; k++) sums[k] = ALL(0);
        for (i64 i = 0; i < whole; i += LANES) {
            VEC factors[8];
UNROLLED
            for (int k = 0; k < outs; k++) {
                /* the next weights: the processor's own prefetching ends at every page */
                PREFETCH(weight[k] + i + outs * in);
                factors[k] = LOAD(weight[k] + i);
            }
UNROLLED
            for (int r = 0; r < rows; r++) {
                const VEC value = LOAD(x + r * in + i);
UNROLLED
                for (int k = 0; k < outs; k++) sums[r * outs + k] += value * factors[k];
            }
        }
        /* bounds are constants, so that the sums stay in registers */
UNROLLED
        for (int k = 0; k < outs; k++)
UNROLLED
            for (int r = 0; r < rows; r++) {
                if (k >= some) continue;
                REAL sum = SUM(sums[r * outs + k]) + (b ? b[o + k] : 0);
                for (i64 i = whole; i < in; i++) sum += weight[k][i] * x[r * in + i];
                REAL *to = y + r * out + o + k;
                *to = NAME(placed)(sum, *to, mode);
            }
    }
}

/* the same in panels of 2 LANES rows, of which the last one may be half full */
TARGET COMPILED_ONCE static void NAME(dense_many)(const REAL *w, const REAL *b, i64 out, i64 in, const REAL *x, REAL *y, i64 rows, const int mode) {
    for (i64 first = 0; first < out; first += CHUNK) {
        const i64 last = out - first < CHUNK ? out : first + CHUNK;
        for (i64 row = 0; row < rows; row += 2 * LANES) {
            const int vectors = rows - row > LANES ? 2 : 1, words = vectors > 1 ? WORDS : 2 * WORDS;
            for (i64 o = first; o < last; o += words) {
                const REAL *weight[2 * WORDS];
                VEC sums[2 * WORDS];
                for (int k = 0; k < words; k++) weight[k] = w + (o + k < last ? o + k : last - 1) * in;
                if (vectors > 1) NAME(multiply)(weight, x + row * in, in, WORDS, 2, sums);
                else NAME(multiply)(weight, x + row * in, in, 2 * WORDS, 1, sums);
                for (int k = 0; k < words && o + k < last; k++)
                    for (int v = 0; v < vectors; v++) {
                        REAL *to = y + row * out + (o + k) * 2 * LANES + v * LANES;
                        VEC sum = sums[k * vectors + v] + (b ? b[o + k] : 0);
                        if (mode == DENSE_ADD) sum += LOAD(to);
                        if (mode == DENSE_RELU) sum = MAXIMUM(ALL(0), sum);
                        STORE(to, sum);
                    }
            }
        }
    }
}

TARGET COMPILED_ONCE static void NAME(dense)(const void *weight, const void *bias, i64 out, i64 in, const REAL *x, REAL *y, i64 rows, i64 p,
                                             const int mode) {
    const REAL *w = weight, *b = bias;
    enum { OUTS = LEVEL == 2 ? 4 : 2 };
    if (p > 1) NAME(dense_many)(w, b, out, in, x, y, rows, mode);
    else if (rows == 1) NAME(dense_few)(w, b, out, in, x, y, 1, 8, mode);
    else if (rows == 2) NAME(dense_few)(w, b, out, in, x, y, 2, 4, mode);
    else if (rows == 3) NAME(dense_few)(w, b, out, in, x, y, 3, 4, mode);
    else if (rows == 4) NAME(dense_few)(w, b, out, in, x, y, 4, OUTS, mode);
    else if (rows == 5) NAME(dense_few)(w, b, out, in, x, y, 5, OUTS, mode);
    else NAME(dense_few)(w, b, out, in, x, y, 6, OUTS, mode);
}
