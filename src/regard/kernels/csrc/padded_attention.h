/* Attention of padded samples: each has its own interval of keys. See simd_instance.h for the macros.
 *
 * An item is a sample with one head of keys, and all heads of queries that share it. Keys are transposed once per item, so that
 * four queries meet 2 LANES keys at a time; what lies outside the interval is never read. */

#if DOUBLE
#define LOGARITHM(x) log(x)
#else
#define LOGARITHM(x) logf(x)
#endif

/* the number of keys from `first` on that query i may attend to */
static INLINE i64 NAME(visible)(const padded_shape *t, i64 i, i64 first, i64 count) {
    if (!t->causal) return count;
    const i64 end = i + t->keys - t->queries + 1 - first;
    return end < 0 ? 0 : end < count ? end : count;
}

/* rows (count, width) of a tensor, as (count, width) and, unless NULL, transposed (width, room) with zeros behind them */
TARGET static void NAME(copy_rows)(const REAL *from, i64 step, i64 count, i64 width, i64 room, REAL factor, REAL *to, REAL *transposed) {
    for (i64 j = 0; j < count; j++)
        for (i64 c = 0; c < width; c++) to[j * width + c] = from[j * step + c] * factor;
    if (!transposed) return;
    for (i64 c = 0; c < width; c++) {
        for (i64 j = 0; j < count; j++) transposed[c * room + j] = to[j * width + c];
        for (i64 j = count; j < room; j++) transposed[c * room + j] = 0;
    }
}

/* Σ a b */
TARGET static REAL NAME(inner_product)(const REAL *a, const REAL *b, i64 width) {
    VEC sums = ALL(0);
    i64 c = 0;
    for (; c + LANES <= width; c += LANES) sums += LOAD(a + c) * LOAD(b + c);
    REAL sum = SUM_OF_LANES(sums);
    for (; c < width; c++) sum += a[c] * b[c];
    return sum;
}

TARGET static int NAME(padded)(const void *context, i64 begin, i64 end) {
    const padded_shape *t = context;
    const i64 width = t->width, n = t->queries, group = t->heads / t->kv_heads, most = (t->keys / LANES + 1) * LANES;
    REAL *s = malloc((size_t)(4 * most + 3 * most * width + n * width) * sizeof(REAL));
    if (!s) return 1;
    REAL *k = s + 4 * most, *transposed = k + most * width, *v = transposed + most * width, *q = v + most * width;
    for (i64 item = begin; item < end; item++) {
        const i64 sample = item / t->kv_heads, kv = item % t->kv_heads;
        const i64 first = t->spans[2 * sample], count = t->spans[2 * sample + 1] - first, room = (count + LANES - 1) / LANES * LANES;
        NAME(copy_rows)((const REAL *)t->k + sample * t->k_b + kv * t->k_h + first * t->k_n, t->k_n, count, width, room, 1, k, transposed);
        NAME(copy_rows)((const REAL *)t->v + sample * t->v_b + kv * t->v_h + first * t->v_n, t->v_n, count, width, room, 1, v, NULL);
        for (i64 h = kv * group; h < (kv + 1) * group; h++) {
            REAL *out = (REAL *)t->out + (sample * n * t->heads + h) * width, *lse = (REAL *)t->lse + (sample * t->heads + h) * n;
            NAME(copy_rows)((const REAL *)t->q + sample * t->q_b + h * t->q_h, t->q_n, n, width, 0, (REAL)t->scale, q, NULL);
            for (i64 i = 0; i < n; i += 4) {
                const i64 last = i + 3 < n ? i + 3 : n - 1, seen = NAME(visible)(t, last, first, count);
                const i64 some = (seen + LANES - 1) / LANES * LANES;
                const REAL *queries[4], *rows[4];
                REAL *outs[4], scales[4];
                for (i64 r = 0; r < 4; r++) {
                    const i64 at = i + r < n ? i + r : last;
                    queries[r] = q + at * width, outs[r] = out + at * t->heads * width, rows[r] = s + r * room;
                }
                NAME(four_scores)(queries, transposed, width, room, some, s);
                for (i64 r = 0; r < 4; r++) {
                    const i64 at = i + r < n ? i + r : last, own = NAME(visible)(t, at, first, count);
                    REAL highest = 0;
                    scales[r] = 0, lse[at] = (REAL)-INFINITY;
                    if (own) {
                        scales[r] = NAME(shares)(s + r * room, own, some, &highest);
                        lse[at] = highest - LOGARITHM(scales[r]);
                    } else
                        for (i64 j = 0; j < some; j++) s[r * room + j] = 0;
                }
                NAME(four_reads)(rows, 1, scales, v, seen, width, outs);
            }
        }
    }
    free(s);
    return 0;
}

/* one row of weights p = e^(s - lse) in place of the scores, and of gradients p (g - Σ p g) in place of those of the weights */
TARGET static void NAME(row_gradient)(REAL *s, REAL *g, i64 count, i64 some, i64 room, REAL lse, REAL mean) {
    for (i64 j = count; j < some; j++) s[j] = (REAL)-INFINITY;
    for (i64 j = 0; j < some; j += LANES) {
        const VEC share = NAME(exponential)(MAXIMUM(ALL(LOWEST), LOAD(s + j) - lse));
        STORE(s + j, share);
        STORE(g + j, share * (LOAD(g + j) - mean));
    }
    for (i64 j = count; j < room; j++) s[j] = 0, g[j] = 0;
}

TARGET static int NAME(padded_backward)(const void *context, i64 begin, i64 end) {
    const padded_shape *t = context;
    const i64 width = t->width, n = t->queries, group = t->heads / t->kv_heads, most = (t->keys / LANES + 1) * LANES;
    const i64 rows = group * n, padded_rows = rows + 4;
    REAL *k = malloc((size_t)(4 * most * width + 2 * rows * width + 2 * padded_rows * most) * sizeof(REAL));
    if (!k) return 1;
    REAL *k_t = k + most * width, *v = k_t + most * width, *v_t = v + most * width, *q = v_t + most * width, *g = q + rows * width;
    REAL *p = g + rows * width, *ds = p + padded_rows * most;
    for (i64 item = begin; item < end; item++) {
        const i64 sample = item / t->kv_heads, kv = item % t->kv_heads;
        const i64 first = t->spans[2 * sample], count = t->spans[2 * sample + 1] - first, room = (count + LANES - 1) / LANES * LANES;
        NAME(copy_rows)((const REAL *)t->k + sample * t->k_b + kv * t->k_h + first * t->k_n, t->k_n, count, width, room, 1, k, k_t);
        NAME(copy_rows)((const REAL *)t->v + sample * t->v_b + kv * t->v_h + first * t->v_n, t->v_n, count, width, room, 1, v, v_t);
        for (i64 member = 0; member < group; member++) {
            const i64 h = kv * group + member, row = member * n;
            const REAL *out = (const REAL *)t->out + (sample * n * t->heads + h) * width, *lse = (const REAL *)t->lse + (sample * t->heads + h) * n;
            REAL *dq = (REAL *)t->dq + (sample * n * t->heads + h) * width;
            NAME(copy_rows)((const REAL *)t->q + sample * t->q_b + h * t->q_h, t->q_n, n, width, 0, (REAL)t->scale, q + row * width, NULL);
            NAME(copy_rows)((const REAL *)t->g + sample * t->g_b + h * t->g_h, t->g_n, n, width, 0, 1, g + row * width, NULL);
            for (i64 i = 0; i < n; i += 4) {
                const i64 last = i + 3 < n ? i + 3 : n - 1, seen = NAME(visible)(t, last, first, count);
                const i64 some = (seen + LANES - 1) / LANES * LANES;
                const REAL *queries[4], *grads[4], *weights[4], scales[4] = {(REAL)t->scale, (REAL)t->scale, (REAL)t->scale, (REAL)t->scale};
                REAL *outs[4];
                for (i64 r = 0; r < 4; r++) {
                    const i64 at = i + r < n ? i + r : last;
                    queries[r] = q + (row + at) * width, grads[r] = g + (row + at) * width;
                    outs[r] = dq + at * t->heads * width, weights[r] = ds + (row + at) * room;
                }
                /* rows behind the last one are written as well, and then by the next head */
                NAME(four_scores)(queries, k_t, width, room, some, p + (row + i) * room);
                NAME(four_scores)(grads, v_t, width, room, some, ds + (row + i) * room);
                for (i64 at = i; at <= last; at++) {
                    const REAL *o = out + at * t->heads * width, *slope = g + (row + at) * width;
                    const REAL mean = NAME(inner_product)(o, slope, width);
                    const i64 own = NAME(visible)(t, at, first, count);
                    NAME(row_gradient)(p + (row + at) * room, ds + (row + at) * room, own, some, room, own ? lse[at] : 0, mean);
                }
                NAME(four_reads)(weights, 1, scales, k, seen, width, outs);
            }
        }
        REAL *dk = (REAL *)t->dk + (sample * t->keys * t->kv_heads + kv) * width, *dv = (REAL *)t->dv + (sample * t->keys * t->kv_heads + kv) * width;
        const i64 step = t->kv_heads * width;
        for (i64 j = 0; j < t->keys; j++)
            if (j < first || j >= first + count)
                for (i64 c = 0; c < width; c++) dk[j * step + c] = dv[j * step + c] = 0;
        for (i64 j = 0; j < count; j += 4) {
            const REAL ones[4] = {1, 1, 1, 1}, *weights[4], *slopes[4];
            REAL *keys[4], *values[4];
            /* with one head of queries, those before the key do not see it */
            i64 from = t->causal && group == 1 ? j + first - (t->keys - t->queries) : 0;
            from = from < 0 ? 0 : from;
            for (i64 r = 0; r < 4; r++) {
                const i64 at = j + r < count ? j + r : count - 1;
                weights[r] = p + from * room + at, slopes[r] = ds + from * room + at;
                keys[r] = dk + (first + at) * step, values[r] = dv + (first + at) * step;
            }
            NAME(four_reads)(weights, room, ones, g + from * width, rows - from, width, values);
            NAME(four_reads)(slopes, room, ones, q + from * width, rows - from, width, keys);
        }
    }
    free(k);
    return 0;
}
