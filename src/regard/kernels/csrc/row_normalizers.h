/* Normalizers of a row of scores: softmax, sparsemax, entmax 1.5. See simd_instance.h for the macros. */

/* in place: scores of one row -> weights; returns log sum exp. Entries where allowed is 0 weigh 0. */
TARGET static REAL NAME(softmax)(REAL *row, i64 k, const unsigned char *allowed, i64 stride) {
    i64 j;
    if (allowed)
        for (j = 0; j < k; j++) row[j] = allowed[j * stride] ? row[j] : (REAL)-INFINITY;
    VEC most = ALL(-INFINITY);
    for (j = 0; j + LANES <= k; j += LANES) most = MAXIMUM(LOAD(row + j), most);
    if (j < k) most = MAXIMUM(NAME(load_some)(row + j, k - j, (REAL)-INFINITY), most);
    REAL max = NAME(largest)(most);
    if (max == (REAL)-INFINITY) {
        /* no entry is allowed, or every score is NaN, which must stay visible */
        REAL fill = 0;
        for (j = 0; j < k; j++)
            if (row[j] != row[j]) fill = row[j];
        for (j = 0; j < k; j++) row[j] = fill;
        return fill == 0 ? (REAL)-INFINITY : fill;
    }
    VEC sum = ALL(0);
    for (j = 0; j < k; j += LANES) {
        VEC x = (j + LANES <= k ? LOAD(row + j) : NAME(load_some)(row + j, k - j, (REAL)-INFINITY)) - max;
        VEC e = NAME(exponential)(MAXIMUM(ALL(LOWEST), x));
        e = SELECT(x < (REAL)LOWEST, ALL(0), e);
        sum += e;
        if (j + LANES <= k) STORE(row + j, e);
        else NAME(store_some)(row + j, k - j, e);
    }
    REAL all = NAME(total)(sum), scale = 1 / all;
    for (j = 0; j < k; j++) row[j] *= scale;
    return max + (REAL)log((double)all);
}

/* softmax: ds = p (g - sum_j p g + g_lse); g is ignored where p is zero */
TARGET static int NAME(softmax_backward)(const void *context, i64 begin, i64 end) {
    const rows *t = context;
    const i64 m = t->m;
    for (i64 row = begin; row < end; row++) {
        const REAL *p = (const REAL *)t->s + row * m, *g = (const REAL *)t->g + row * m;
        REAL *ds = (REAL *)t->p + row * m;
        VEC sum = ALL(0);
        i64 j = 0;
        for (; j + LANES <= m; j += LANES) {
            VEC x = LOAD(p + j);
            sum += WHERE(x != (REAL)0, x * LOAD(g + j));
        }
        REAL shift = NAME(total)(sum);
        for (; j < m; j++) shift += p[j] != 0 ? p[j] * g[j] : 0;
        if (t->tau) shift -= ((const REAL *)t->tau)[row];
        for (j = 0; j + LANES <= m; j += LANES) {
            VEC x = LOAD(p + j);
            STORE(ds + j, WHERE(x != (REAL)0, x * (LOAD(g + j) - shift)));
        }
        for (; j < m; j++) ds[j] = p[j] != 0 ? p[j] * (g[j] - shift) : 0;
    }
    return 0;
}

/* Newton's method on the threshold, in z = s - max or z = (s - max) / 2:
 *   sparsemax   p = (z - tau)+     sum (z - tau)+ = 1      (Martins and Astudillo 2016)
 *   entmax 1.5  p = (z - tau)+^2   sum (z - tau)+^2 = 1    (Peters, Niculae and Martins 2019)
 * Both sums are convex and fall with tau, and tau = -1 lies left of the root, so every step goes right and none passes it:
 * the steps end when rounding stops them. No sort; for sparsemax this is Michelot's algorithm. */
TARGET static REAL NAME(threshold)(const REAL *s, i64 m, REAL max, int squared) {
    const REAL half = squared ? (REAL)0.5 : (REAL)1;
    REAL tau = -1;
    double before = INFINITY;
    for (int step = 0; step < 100; step++) {
        double value = 0, slope = 0;
        /* a long row is summed in segments, which limits the rounding error of float sums */
        for (i64 from = 0; from < m; from += 4096) {
            const i64 to = m - from < 4096 ? m : from + 4096;
            VEC v0 = ALL(0), v1 = ALL(0), l0 = ALL(0), l1 = ALL(0);
            IVEC c0 = {0}, c1 = {0};
            i64 j = from;
            if (squared)
                for (; j + 2 * LANES <= to; j += 2 * LANES) {
                    VEC x = MAXIMUM((LOAD(s + j) - max) * half - tau, ALL(0));
                    VEC y = MAXIMUM((LOAD(s + j + LANES) - max) * half - tau, ALL(0));
                    v0 += x * x, l0 += x, v1 += y * y, l1 += y;
                }
            else
                for (; j + 2 * LANES <= to; j += 2 * LANES) {
                    VEC x = LOAD(s + j) - max - tau, y = LOAD(s + j + LANES) - max - tau;
                    c0 += COUNT(x > (REAL)0), c1 += COUNT(y > (REAL)0);
                    v0 += MAXIMUM(x, ALL(0)), v1 += MAXIMUM(y, ALL(0));
                }
            REAL value_tail = 0, slope_tail = 0;
            for (; j < to; j++) {
                REAL x = (s[j] - max) * half - tau;
                if (x > 0) value_tail += squared ? x * x : x, slope_tail += squared ? 2 * x : 1;
            }
            value += (double)NAME(total)(v0 + v1) + value_tail;
            slope += (squared ? 2 * (double)NAME(total)(l0 + l1) : (double)NAME(itotal)(c0 + c1)) + slope_tail;
        }
        if (!(slope > 0)) break;
        REAL next = (REAL)(tau + (value - 1) / slope);
        /* a step to the left only corrects the rounding of the step before; sparsemax is exact once the support stays the same */
        const int last = !(next > tau) || (!squared && slope == before);
        tau = next;
        if (last) break;
        before = slope;
    }
    return tau;
}

TARGET static int NAME(sparse)(const void *context, i64 begin, i64 end) {
    const rows *t = context;
    const i64 m = t->m;
    const int squared = t->squared;
    const REAL half = squared ? (REAL)0.5 : (REAL)1;
    for (i64 row = begin; row < end; row++) {
        const REAL *s = (const REAL *)t->s + row * m;
        REAL *p = (REAL *)t->p + row * m;
        i64 j;
        if (t->allowed) {
            const unsigned char *allowed = t->allowed + row / t->q * t->m_n + row % t->q * t->m_q;
            for (j = 0; j < m; j++) p[j] = allowed[j * t->m_k] ? s[j] : (REAL)-INFINITY;
            s = p;
        }
        VEC most = ALL(-INFINITY);
        IVEC nan = {0};
        for (j = 0; j + LANES <= m; j += LANES) {
            VEC x = LOAD(s + j);
            most = MAXIMUM(x, most), nan |= COUNT(x != x);
        }
        REAL max = NAME(largest)(most), tau = INFINITY;
        int bad = NAME(itotal)(nan) != 0;
        for (; j < m; j++) max = s[j] > max ? s[j] : max, bad |= s[j] != s[j];
        if (bad || max == (REAL)INFINITY || max == (REAL)-INFINITY) {
            /* NaN and +inf stay visible, as in softmax; a row without an allowed entry is zero */
            REAL fill = bad || max == (REAL)INFINITY ? (REAL)NAN : 0;
            for (j = 0; j < m; j++) p[j] = fill;
            if (fill != fill) tau = fill;
        } else {
            tau = NAME(threshold)(s, m, max, squared);
            for (j = 0; j + LANES <= m; j += LANES) {
                VEC x = MAXIMUM((LOAD(s + j) - max) * half - tau, ALL(0));
                STORE(p + j, squared ? x * x : x);
            }
            for (; j < m; j++) {
                REAL x = (s[j] - max) * half - tau;
                p[j] = x > 0 ? (squared ? x * x : x) : 0;
            }
            tau += max * half;
        }
        ((REAL *)t->tau)[row] = tau;
    }
    return 0;
}

/* With u = 1 (sparsemax) or sqrt p (entmax 1.5) on the support: ds = u (g - sum_j u g / sum_j u) */
TARGET static int NAME(sparse_backward)(const void *context, i64 begin, i64 end) {
    const rows *t = context;
    const i64 m = t->m;
    const int squared = t->squared;
    for (i64 row = begin; row < end; row++) {
        const REAL *p = (const REAL *)t->s + row * m, *g = (const REAL *)t->g + row * m;
        REAL *ds = (REAL *)t->p + row * m;
        VEC upper = ALL(0), lower = ALL(0);
        i64 j;
        for (j = 0; j < m; j += LANES) {
            const int whole = j + LANES <= m;
            VEC x = whole ? LOAD(p + j) : NAME(load_some)(p + j, m - j, 0);
            VEC y = whole ? LOAD(g + j) : NAME(load_some)(g + j, m - j, 0);
            VEC u = squared ? SQRT(x) : ALL(1);
            /* p != 0 holds for NaN too: a row of NaN has a gradient of NaN */
            upper += WHERE(x != (REAL)0, u * y), lower += WHERE(x != (REAL)0, u);
        }
        REAL low = NAME(total)(lower), mean = low != 0 ? NAME(total)(upper) / low : 0;
        for (j = 0; j < m; j += LANES) {
            const int whole = j + LANES <= m;
            VEC x = whole ? LOAD(p + j) : NAME(load_some)(p + j, m - j, 0);
            VEC y = whole ? LOAD(g + j) : NAME(load_some)(g + j, m - j, 0);
            VEC u = squared ? SQRT(x) : ALL(1);
            VEC grad = WHERE(x != (REAL)0, u * (y - mean));
            if (whole) STORE(ds + j, grad);
            else NAME(store_some)(ds + j, m - j, grad);
        }
    }
    return 0;
}

/* Gradient of the cross-entropy of rows of logits, in place: softmax(s + b) minus `share` at the target; the negative log-likelihood of every row;
 * and the sum of the gradient over the rows, for b. An item is a block of rows with its own sum, so the result does not depend on the threads. */
TARGET static int NAME(likelihood)(const void *context, i64 begin, i64 end) {
    const likely *t = context;
    const i64 v = t->v;
    const REAL *bias = t->bias;
    for (i64 block = begin; block < end; block++) {
        REAL *sums = t->sums ? (REAL *)t->sums + block * v : NULL;
        const i64 last = (block + 1) * t->block < t->count ? (block + 1) * t->block : t->count;
        if (sums) memset(sums, 0, (size_t)v * sizeof(REAL));
        for (i64 row = block * t->block; row < last; row++) {
            REAL *s = (REAL *)t->s + row * v;
            const i64 right = t->right[row];
            VEC most = ALL(-INFINITY), sum = ALL(0);
            i64 j = 0;
            for (; j + LANES <= v; j += LANES) {
                VEC x = bias ? LOAD(s + j) + LOAD(bias + j) : LOAD(s + j);
                if (bias) STORE(s + j, x);
                most = MAXIMUM(x, most);
            }
            REAL max = NAME(largest)(most);
            for (; j < v; j++) {
                if (bias) s[j] += bias[j];
                max = s[j] > max ? s[j] : max;
            }
            const REAL picked = s[right];
            /* the maximum ignores a NaN, which reappears here */
            for (j = 0; j < v; j += LANES) {
                VEC x = (j + LANES <= v ? LOAD(s + j) : NAME(load_some)(s + j, v - j, (REAL)-INFINITY)) - max;
                VEC e = SELECT(x < (REAL)LOWEST, ALL(0), NAME(exponential)(MAXIMUM(ALL(LOWEST), x)));
                sum += e;
                if (j + LANES <= v) STORE(s + j, e);
                else NAME(store_some)(s + j, v - j, e);
            }
            const REAL all = NAME(total)(sum);
            ((REAL *)t->nll)[row] = max + (REAL)log((double)all) - picked;
            ((REAL *)t->picked)[row] = picked;
            if (!sums) continue;
            const REAL scale = 1 / all;
            s[right] -= (REAL)t->share * all;
            for (j = 0; j + LANES <= v; j += LANES) {
                VEC x = LOAD(s + j) * scale;
                STORE(s + j, x);
                STORE(sums + j, LOAD(sums + j) + x);
            }
            for (; j < v; j++) sums[j] += s[j] *= scale;
        }
    }
    return 0;
}
