/* Self-attention of texts of different lengths, one behind the other. See simd_instance.h for the macros. */

/* the sum and the maximum of all lanes, by halves: the loops of total and largest wait for every lane */
#if X86 && LEVEL == 2 && DOUBLE
#define SUM_OF_LANES(x) _mm512_reduce_add_pd((__m512d)(x))
#define MOST_OF_LANES(x) _mm512_reduce_max_pd((__m512d)(x))
#elif X86 && LEVEL == 2
#define SUM_OF_LANES(x) _mm512_reduce_add_ps((__m512)(x))
#define MOST_OF_LANES(x) _mm512_reduce_max_ps((__m512)(x))
#else
#define SUM_OF_LANES(x) NAME(total)(x)
#define MOST_OF_LANES(x) NAME(largest)(x)
#endif

/* s (4, room) = q kᵀ of four queries and the first `some` keys; k is transposed, (width, room); both are multiples of LANES */
TARGET static void NAME(four_scores)(const REAL *const *q, const REAL *k, i64 width, i64 room, i64 some, REAL *s) {
    const REAL *q0 = q[0], *q1 = q[1], *q2 = q[2], *q3 = q[3];
    i64 j = 0;
    for (; j + 2 * LANES <= some; j += 2 * LANES) {
        VEC a0 = ALL(0), a1 = ALL(0), a2 = ALL(0), a3 = ALL(0), b0 = ALL(0), b1 = ALL(0), b2 = ALL(0), b3 = ALL(0);
        const REAL *from = k + j;
        for (i64 c = 0; c < width; c++, from += room) {
            const VEC x = LOAD(from), y = LOAD(from + LANES);
            a0 += q0[c] * x, b0 += q0[c] * y, a1 += q1[c] * x, b1 += q1[c] * y;
            a2 += q2[c] * x, b2 += q2[c] * y, a3 += q3[c] * x, b3 += q3[c] * y;
        }
        REAL *to = s + j;
        STORE(to, a0), STORE(to + LANES, b0), STORE(to + room, a1), STORE(to + room + LANES, b1);
        STORE(to + 2 * room, a2), STORE(to + 2 * room + LANES, b2), STORE(to + 3 * room, a3), STORE(to + 3 * room + LANES, b3);
    }
    if (j < some) {
        VEC a0 = ALL(0), a1 = ALL(0), a2 = ALL(0), a3 = ALL(0);
        const REAL *from = k + j;
        for (i64 c = 0; c < width; c++, from += room) {
            const VEC x = LOAD(from);
            a0 += q0[c] * x, a1 += q1[c] * x, a2 += q2[c] * x, a3 += q3[c] * x;
        }
        REAL *to = s + j;
        STORE(to, a0), STORE(to + room, a1), STORE(to + 2 * room, a2), STORE(to + 3 * room, a3);
    }
}

/* e^(s - max) of `count` scores in place, those behind them as if they were -inf; returns 1 / sum, and the maximum */
TARGET static REAL NAME(shares)(REAL *s, i64 count, i64 room, REAL *maximum) {
    for (i64 j = count; j < room; j++) s[j] = (REAL)-INFINITY;
    VEC highest = LOAD(s), totals = ALL(0);
    for (i64 j = LANES; j < room; j += LANES) highest = MAXIMUM(highest, LOAD(s + j));
    const REAL most = MOST_OF_LANES(highest);
    /* e^x need not be exact below the last bit of any sum; NaN stays NaN */
    for (i64 j = 0; j < room; j += LANES) {
        const VEC share = NAME(exponential)(MAXIMUM(ALL(LOWEST), LOAD(s + j) - most));
        totals += share;
        STORE(s + j, share);
    }
    *maximum = most;
    return 1 / SUM_OF_LANES(totals);
}

/* Σ_j w[r][j step] v[j] times scale[r], to out[r], for four rows r, some of which may be the same; v is (count, width) */
TARGET static void NAME(four_reads)(const REAL *const *w, i64 step, const REAL *scale, const REAL *v, i64 count, i64 width, REAL *const *out) {
    const REAL *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3];
    i64 c = 0;
    for (; c + 2 * LANES <= width; c += 2 * LANES) {
        VEC a0 = ALL(0), a1 = ALL(0), a2 = ALL(0), a3 = ALL(0), b0 = ALL(0), b1 = ALL(0), b2 = ALL(0), b3 = ALL(0);
        const REAL *from = v + c;
        for (i64 j = 0, at = 0; j < count; j++, from += width, at += step) {
            const VEC x = LOAD(from), y = LOAD(from + LANES);
            a0 += w0[at] * x, b0 += w0[at] * y, a1 += w1[at] * x, b1 += w1[at] * y;
            a2 += w2[at] * x, b2 += w2[at] * y, a3 += w3[at] * x, b3 += w3[at] * y;
        }
        STORE(out[3] + c, a3 * scale[3]), STORE(out[3] + c + LANES, b3 * scale[3]);
        STORE(out[2] + c, a2 * scale[2]), STORE(out[2] + c + LANES, b2 * scale[2]);
        STORE(out[1] + c, a1 * scale[1]), STORE(out[1] + c + LANES, b1 * scale[1]);
        STORE(out[0] + c, a0 * scale[0]), STORE(out[0] + c + LANES, b0 * scale[0]);
    }
    for (; c < width; c += LANES) {
        const i64 some = width - c < LANES ? width - c : LANES;
        VEC a0 = ALL(0), a1 = ALL(0), a2 = ALL(0), a3 = ALL(0);
        const REAL *from = v + c;
        for (i64 j = 0, at = 0; j < count; j++, from += width, at += step) {
            const VEC x = some == LANES ? LOAD(from) : NAME(load_some)(from, some, 0);
            a0 += w0[at] * x, a1 += w1[at] * x, a2 += w2[at] * x, a3 += w3[at] * x;
        }
        NAME(store_some)(out[3] + c, some, a3 * scale[3]), NAME(store_some)(out[2] + c, some, a2 * scale[2]);
        NAME(store_some)(out[1] + c, some, a1 * scale[1]), NAME(store_some)(out[0] + c, some, a0 * scale[0]);
    }
}

/* An item is a text; four queries of a head at a time. Behind the last query it is computed again, and written once more. */
TARGET static int NAME(ragged)(const void *context, i64 begin, i64 end) {
    const ragged_shape *t = context;
    const i64 width = t->width, d = t->heads * width, most = (t->longest / LANES + 1) * LANES;
    REAL *s = malloc((size_t)(4 * most + 3 * most * width) * sizeof(REAL));
    if (!s) return 1;
    REAL *k = s + 4 * most, *v = k + most * width, *q = v + most * width;
    for (i64 text = begin; text < end; text++) {
        const i64 from = t->starts[text], count = t->starts[text + 1] - from, room = (count + LANES - 1) / LANES * LANES;
        for (i64 h = 0; h < t->heads; h++) {
            const REAL *x = (const REAL *)t->x + from * 3 * d + h * width;
            const REAL *bias = (const REAL *)t->bias + h * width;
            REAL *out = (REAL *)t->out + from * d + h * width;
            for (i64 j = 0; j < count; j++) {
                const REAL *row = x + 3 * j * d;
                for (i64 c = 0; c < width; c++) q[j * width + c] = (row[c] + bias[c]) * (REAL)t->scale;
                for (i64 c = 0; c < width; c++) v[j * width + c] = row[2 * d + c] + bias[2 * d + c];
                for (i64 c = 0; c < width; c++) k[c * room + j] = row[d + c] + bias[d + c];
            }
            for (i64 c = 0; c < width; c++)
                for (i64 j = count; j < room; j++) k[c * room + j] = 0;
            for (i64 i = 0; i < count; i += 4) {
                const REAL *queries[4], *rows[4];
                REAL *outs[4], scales[4], highest;
                for (i64 r = 0; r < 4; r++) {
                    const i64 at = i + r < count ? i + r : count - 1;
                    queries[r] = q + at * width, outs[r] = out + at * d, rows[r] = s + r * room;
                }
                NAME(four_scores)(queries, k, width, room, room, s);
                for (i64 r = 0; r < 4; r++) scales[r] = NAME(shares)(s + r * room, count, room, &highest);
                NAME(four_reads)(rows, 1, scales, v, count, width, outs);
            }
        }
    }
    free(s);
    return 0;
}
