/* Self-attention of texts of different lengths, one behind the other. See simd_instance.h for the macros. */

/* s (4, room) = q kᵀ of four queries; k is transposed, (width, room), room a multiple of 2 LANES */
TARGET static void NAME(four_scores)(const REAL *const *q, const REAL *k, i64 width, i64 room, REAL *s) {
    const REAL *q0 = q[0], *q1 = q[1], *q2 = q[2], *q3 = q[3];
    for (i64 j = 0; j < room; j += 2 * LANES) {
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
}

/* e^(s - max) of `count` scores in place, those behind them as if they were -inf; returns 1 / sum */
TARGET static REAL NAME(shares)(REAL *s, i64 count, i64 room) {
    for (i64 j = count; j < room; j++) s[j] = (REAL)-INFINITY;
    VEC highest = LOAD(s), totals = ALL(0);
    for (i64 j = LANES; j < room; j += LANES) highest = MAXIMUM(highest, LOAD(s + j));
    const REAL most = NAME(largest)(highest);
    /* e^x need not be exact below the last bit of any sum; NaN stays NaN */
    for (i64 j = 0; j < room; j += LANES) {
        const VEC share = NAME(exponential)(MAXIMUM(ALL(LOWEST), LOAD(s + j) - most));
        totals += share;
        STORE(s + j, share);
    }
    return 1 / NAME(total)(totals);
}

/* two rows of shares times the values (count, width): to out0 and out1, which may be the same */
TARGET static void NAME(two_reads)(const REAL *s0, const REAL *s1, REAL scale0, REAL scale1, const REAL *v, i64 count, i64 width, REAL *out0, REAL *out1) {
    i64 c = 0;
    for (; c + 4 * LANES <= width; c += 4 * LANES) {
        VEC a0 = ALL(0), a1 = ALL(0), a2 = ALL(0), a3 = ALL(0), b0 = ALL(0), b1 = ALL(0), b2 = ALL(0), b3 = ALL(0);
        const REAL *from = v + c;
        for (i64 j = 0; j < count; j++, from += width) {
            const VEC x = LOAD(from), y = LOAD(from + LANES), z = LOAD(from + 2 * LANES), w = LOAD(from + 3 * LANES);
            a0 += s0[j] * x, a1 += s0[j] * y, a2 += s0[j] * z, a3 += s0[j] * w;
            b0 += s1[j] * x, b1 += s1[j] * y, b2 += s1[j] * z, b3 += s1[j] * w;
        }
        STORE(out1 + c, b0 * scale1), STORE(out1 + c + LANES, b1 * scale1);
        STORE(out1 + c + 2 * LANES, b2 * scale1), STORE(out1 + c + 3 * LANES, b3 * scale1);
        STORE(out0 + c, a0 * scale0), STORE(out0 + c + LANES, a1 * scale0);
        STORE(out0 + c + 2 * LANES, a2 * scale0), STORE(out0 + c + 3 * LANES, a3 * scale0);
    }
    for (; c + LANES <= width; c += LANES) {
        VEC a = ALL(0), b = ALL(0);
        for (i64 j = 0; j < count; j++) a += s0[j] * LOAD(v + j * width + c), b += s1[j] * LOAD(v + j * width + c);
        STORE(out1 + c, b * scale1), STORE(out0 + c, a * scale0);
    }
    for (; c < width; c++) {
        REAL a = 0, b = 0;
        for (i64 j = 0; j < count; j++) a += s0[j] * v[j * width + c], b += s1[j] * v[j * width + c];
        out1[c] = b * scale1, out0[c] = a * scale0;
    }
}

/* An item is a text; four queries of a head at a time. Behind the last query it is computed again, and written once more. */
TARGET static int NAME(ragged)(const void *context, i64 begin, i64 end) {
    const ragged_shape *t = context;
    const i64 width = t->width, d = t->heads * width, most = (t->longest / (2 * LANES) + 1) * 2 * LANES;
    REAL *s = malloc((size_t)(4 * most + 3 * most * width) * sizeof(REAL));
    if (!s) return 1;
    REAL *k = s + 4 * most, *v = k + most * width, *q = v + most * width;
    for (i64 text = begin; text < end; text++) {
        const i64 from = t->starts[text], count = t->starts[text + 1] - from, room = (count + 2 * LANES - 1) / (2 * LANES) * 2 * LANES;
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
                const REAL *queries[4];
                REAL *outs[4], scales[4];
                for (i64 r = 0; r < 4; r++) {
                    const i64 at = i + r < count ? i + r : count - 1;
                    queries[r] = q + at * width, outs[r] = out + at * d;
                }
                NAME(four_scores)(queries, k, width, room, s);
                for (i64 r = 0; r < 4; r++) scales[r] = NAME(shares)(s + r * room, count, room);
                NAME(two_reads)(s, s + room, scales[0], scales[1], v, count, width, outs[0], outs[1]);
                NAME(two_reads)(s + 2 * room, s + 3 * room, scales[2], scales[3], v, count, width, outs[2], outs[3]);
            }
        }
    }
    free(s);
    return 0;
}
