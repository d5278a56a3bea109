/* Feature maps "b c n", contiguous: n positions of every channel of every sample. A row is one channel of one sample.
 *
 * Each kernel passes over the map once; a row that it reads twice is still in the cache. A row whose sum is not finite
 * is searched value by value for a NaN.
 */

#ifndef MAP_BLOCK
#define MAP_BLOCK 1024 /* positions whose sums over the channels stay in the cache while all channels are read */
#endif

/* 1 / (1 + e^-z) */
TARGET static INLINE VEC NAME(logistic)(VEC z) {
    VEC x = -z;
    x = MAXIMUM(ALL(LOWEST), x);
    x = MINIMUM(ALL(-LOWEST), x);
    return RECIPROCAL(NAME(exponential)(x) + (REAL)1);
}

TARGET static INLINE VEC NAME(load_up_to)(const REAL *from, i64 left) {
    return left >= LANES ? LOAD(from) : NAME(load_some)(from, left, 0);
}

TARGET static INLINE void NAME(store_up_to)(REAL *to, i64 left, VEC x) {
    if (left >= LANES) STORE(to, x);
    else NAME(store_some)(to, left, x);
}

/* the sum of a row, in four independent chains: half the rounding error of one chain, and no waiting for the previous addition */
TARGET static INLINE REAL NAME(row_sum)(const REAL *x, i64 n) {
    VEC s0 = ALL(0), s1 = ALL(0), s2 = ALL(0), s3 = ALL(0);
    i64 p = 0;
    for (; p + 4 * LANES <= n; p += 4 * LANES)
        s0 += LOAD(x + p), s1 += LOAD(x + p + LANES), s2 += LOAD(x + p + 2 * LANES), s3 += LOAD(x + p + 3 * LANES);
    for (; p < n; p += LANES) s0 += NAME(load_up_to)(x + p, n - p);
    return NAME(total)((s0 + s1) + (s2 + s3));
}

/* SimAM. Items: rows. d = x - mean, v = sum d^2 / (n - 1) + lam, out = x sigma(d^2 / (4 v) + 1/2) */
TARGET static int NAME(simam)(const void *context, i64 begin, i64 end) {
    const maps *t = context;
    const i64 n = t->n;
    for (i64 row = begin; row < end; row++) {
        const REAL *x = (const REAL *)t->x + row * n;
        REAL *out = (REAL *)t->out + row * n;
        const REAL mean = NAME(row_sum)(x, n) / (REAL)n;
        VEC s0 = ALL(0), s1 = ALL(0);
        i64 p = 0;
        for (; p + 2 * LANES <= n; p += 2 * LANES) {
            const VEC d0 = LOAD(x + p) - mean, d1 = LOAD(x + p + LANES) - mean;
            s0 += d0 * d0, s1 += d1 * d1;
        }
        REAL squares = NAME(total)(s0 + s1);
        for (; p < n; p++) squares += (x[p] - mean) * (x[p] - mean);
        const REAL v = squares / (REAL)(n > 1 ? n - 1 : 1) + (REAL)t->lam, quarter = (REAL)0.25 / v;
        for (p = 0; p < n; p += LANES) {
            const VEC y = NAME(load_up_to)(x + p, n - p), d = y - mean;
            NAME(store_up_to)(out + p, n - p, y * NAME(logistic)(d * d * quarter + (REAL)0.5));
        }
        ((REAL *)t->mean)[row] = mean;
        ((REAL *)t->most)[row] = v;
    }
    return 0;
}

/* With s the gate and h = g x s (1 - s): dx = g s + (h d - mean(h d)) / (2 v) - d sum(h d^2) / (2 (n - 1) v^2) */
TARGET static int NAME(simam_backward)(const void *context, i64 begin, i64 end) {
    const maps *t = context;
    const i64 n = t->n;
    for (i64 row = begin; row < end; row++) {
        const REAL *x = (const REAL *)t->x + row * n, *g = (const REAL *)t->g + row * n;
        REAL *dx = (REAL *)t->out + row * n;
        const REAL mean = ((const REAL *)t->mean)[row], v = ((const REAL *)t->most)[row];
        const REAL quarter = (REAL)0.25 / v, half = (REAL)0.5 / v;
        VEC first = ALL(0), second = ALL(0);
        for (i64 p = 0; p < n; p += LANES) {
            const VEC y = NAME(load_up_to)(x + p, n - p), grad = NAME(load_up_to)(g + p, n - p), d = y - mean;
            const VEC s = NAME(logistic)(d * d * quarter + (REAL)0.5), gs = grad * s, hd = gs * y * ((REAL)1 - s) * d;
            /* past the end grad is zero, and so are all summands */
            first += hd, second += hd * d;
            NAME(store_up_to)(dx + p, n - p, gs + hd * half);
        }
        const REAL shift = NAME(total)(first) / (REAL)n * half;
        const REAL pull = NAME(total)(second) / (REAL)(n > 1 ? n - 1 : 1) * half / v;
        for (i64 p = 0; p < n; p += LANES) {
            const VEC d = NAME(load_up_to)(x + p, n - p) - mean;
            NAME(store_up_to)(dx + p, n - p, NAME(load_up_to)(dx + p, n - p) - shift - d * pull);
        }
    }
    return 0;
}

/* Items: rows. The mean of every row and, if `most` is given, its maximum and the index of the first one. */
TARGET static int NAME(pool)(const void *context, i64 begin, i64 end) {
    const maps *t = context;
    const i64 n = t->n;
    for (i64 row = begin; row < end; row++) {
        const REAL *x = (const REAL *)t->x + row * n;
        if (!t->most) {
            ((REAL *)t->mean)[row] = NAME(row_sum)(x, n) / (REAL)n;
            continue;
        }
        VEC s0 = ALL(0), s1 = ALL(0), m0 = ALL(-INFINITY), m1 = m0;
        i64 p = 0, at = 0;
        for (; p + 2 * LANES <= n; p += 2 * LANES) {
            const VEC y0 = LOAD(x + p), y1 = LOAD(x + p + LANES);
            s0 += y0, s1 += y1, m0 = MAXIMUM(y0, m0), m1 = MAXIMUM(y1, m1);
        }
        REAL sum = NAME(total)(s0 + s1), most = NAME(largest)(MAXIMUM(m0, m1));
        for (; p < n; p++) sum += x[p], most = x[p] > most ? x[p] : most;
        if (sum - sum != 0) /* infinite or NaN: only then may the row hold a NaN */
            for (p = 0; p < n; p++)
                if (x[p] != x[p]) { most = x[p]; break; }
        while (at + 1 < n && x[at] != most && !(x[at] != x[at] && most != most)) at++;
        ((REAL *)t->mean)[row] = sum / (REAL)n;
        ((REAL *)t->most)[row] = most;
        ((INT *)t->at)[row] = (INT)at;
    }
    return 0;
}

/* dx += dmean / n in the whole row, and dmost at the maximum */
TARGET static int NAME(pool_backward)(const void *context, i64 begin, i64 end) {
    const maps *t = context;
    const i64 n = t->n;
    for (i64 row = begin; row < end; row++) {
        REAL *dx = (REAL *)t->out + row * n;
        const REAL share = ((const REAL *)t->mean)[row] / (REAL)n;
        for (i64 p = 0; p < n; p += LANES) NAME(store_up_to)(dx + p, n - p, NAME(load_up_to)(dx + p, n - p) + share);
        if (t->most) dx[((const INT *)t->at)[row]] += ((const REAL *)t->most)[row];
    }
    return 0;
}

/* Items: (sample, block of positions). Mean and maximum over the channels of w_c x_cp, without forming it. */
TARGET static int NAME(across)(const void *context, i64 begin, i64 end) {
    const maps *t = context;
    const i64 n = t->n, c = t->c, blocks = (n + MAP_BLOCK - 1) / MAP_BLOCK;
    REAL sum[MAP_BLOCK], most[MAP_BLOCK];
    INT at[MAP_BLOCK];
    for (i64 item = begin; item < end; item++) {
        const i64 b = item / blocks, from = item % blocks * MAP_BLOCK, count = n - from < MAP_BLOCK ? n - from : MAP_BLOCK;
        const REAL *x = (const REAL *)t->x + b * c * n + from, *w = t->w ? (const REAL *)t->w + b * c : NULL;
        for (i64 p = 0; p < count; p++) sum[p] = 0, most[p] = (REAL)-INFINITY, at[p] = 0;
        for (i64 i = 0; i < c; i++) {
            const REAL *row = x + i * n, weight = w ? w[i] : (REAL)1;
            i64 p = 0;
            for (; p + LANES <= count; p += LANES) {
                const VEC y = LOAD(row + p) * weight, m = LOAD(most + p);
                STORE(sum + p, LOAD(sum + p) + y);
#if BYTES
                const IVEC more = (IVEC)(y > m), old = *(const NAME(iuvec) *)(at + p);
                STORE(most + p, SELECT(more, y, m));
                *(NAME(iuvec) *)(at + p) = (more & ((INT)i - (IVEC){0})) | (~more & old);
#else
                if (y > m) most[p] = y, at[p] = (INT)i;
#endif
            }
            for (; p < count; p++) {
                const REAL y = row[p] * weight;
                sum[p] += y;
                if (y > most[p]) most[p] = y, at[p] = (INT)i;
            }
        }
        for (i64 p = 0; p < count; p++)
            if (sum[p] - sum[p] != 0)
                for (i64 i = 0; i < c; i++) {
                    const REAL y = x[i * n + p] * (w ? w[i] : (REAL)1);
                    if (y != y) { most[p] = y, at[p] = (INT)i; break; }
                }
        for (i64 p = 0; p < count; p++) {
            ((REAL *)t->mean)[b * n + from + p] = sum[p] / (REAL)c;
            ((REAL *)t->most)[b * n + from + p] = most[p];
            ((INT *)t->at)[b * n + from + p] = at[p];
        }
    }
    return 0;
}

/* Items: rows. With u_p = dmean_p / c, plus dmost_p where channel i was the maximum: dx += w_i u, dw_i = sum_p x u */
TARGET static int NAME(across_backward)(const void *context, i64 begin, i64 end) {
    const maps *t = context;
    const i64 n = t->n, c = t->c;
    const REAL share = (REAL)1 / (REAL)c;
    for (i64 row = begin; row < end; row++) {
        const i64 b = row / c, i = row % c;
        const REAL *x = (const REAL *)t->x + row * n, weight = t->w ? ((const REAL *)t->w)[row] : (REAL)1;
        const REAL *mean = (const REAL *)t->mean + b * n, *most = (const REAL *)t->most + b * n;
        const INT *at = (const INT *)t->at + b * n;
        REAL *dx = (REAL *)t->out + row * n, tail = 0;
        VEC sum = ALL(0);
        i64 p = 0;
        for (; p + LANES <= n; p += LANES) {
#if BYTES
            const VEC here = WHERE(*(const NAME(iuvec) *)(at + p) == ((INT)i - (IVEC){0}), LOAD(most + p));
#else
            const VEC here = at[p] == i ? most[p] : 0;
#endif
            const VEC u = LOAD(mean + p) * share + here;
            STORE(dx + p, LOAD(dx + p) + u * weight);
            sum += LOAD(x + p) * u;
        }
        for (; p < n; p++) {
            const REAL u = mean[p] * share + (at[p] == (INT)i ? most[p] : 0);
            dx[p] += u * weight, tail += x[p] * u;
        }
        if (t->dw) ((REAL *)t->dw)[row] = NAME(total)(sum) + tail;
    }
    return 0;
}

/* Items: rows. out = w_c m_p x, a factor that is NULL is left out */
TARGET static int NAME(scale)(const void *context, i64 begin, i64 end) {
    const maps *t = context;
    const i64 n = t->n, c = t->c;
    for (i64 row = begin; row < end; row++) {
        const REAL *x = (const REAL *)t->x + row * n, weight = t->w ? ((const REAL *)t->w)[row] : (REAL)1;
        const REAL *m = t->m ? (const REAL *)t->m + row / c * n : NULL;
        REAL *out = (REAL *)t->out + row * n;
        for (i64 p = 0; p < n; p += LANES) {
            VEC y = NAME(load_up_to)(x + p, n - p) * weight;
            if (m) y *= NAME(load_up_to)(m + p, n - p);
            NAME(store_up_to)(out + p, n - p, y);
        }
    }
    return 0;
}

/* Items: samples, or rows if there is no m, which the channels share. dx = g w m, dw_c = sum_p g x m, dm_p = sum_c g x w */
TARGET static int NAME(scale_backward)(const void *context, i64 begin, i64 end) {
    const maps *t = context;
    const i64 n = t->n, c = t->m ? t->c : 1;
    for (i64 row = begin * c; row < end * c; row++) {
        const REAL *x = (const REAL *)t->x + row * n, *g = (const REAL *)t->g + row * n;
        const REAL weight = t->w ? ((const REAL *)t->w)[row] : (REAL)1;
        const REAL *m = t->m ? (const REAL *)t->m + row / c * n : NULL;
        REAL *dx = (REAL *)t->out + row * n, *dm = t->m ? (REAL *)t->dm + row / c * n : NULL;
        if (dm && row % c == 0) memset(dm, 0, (size_t)n * sizeof(REAL));
        VEC sum = ALL(0);
        for (i64 p = 0; p < n; p += LANES) {
            const i64 left = n - p;
            const VEC y = NAME(load_up_to)(x + p, left), grad = NAME(load_up_to)(g + p, left), both = y * grad;
            if (m) {
                const VEC mask = NAME(load_up_to)(m + p, left);
                sum += both * mask;
                NAME(store_up_to)(dm + p, left, NAME(load_up_to)(dm + p, left) + both * weight);
                NAME(store_up_to)(dx + p, left, grad * mask * weight);
            } else {
                sum += both;
                NAME(store_up_to)(dx + p, left, grad * weight);
            }
        }
        if (t->dw) ((REAL *)t->dw)[row] = NAME(total)(sum);
    }
    return 0;
}
