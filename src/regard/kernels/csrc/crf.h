/* Linear-chain conditional random field: log partition, its gradient, and the best path. See simd_instance.h for the macros.
 *
 * Scaled form: alpha_t = (alpha_{t-1} E) x_t with E = e^{T - max T} and x = e^{e - max e}, divided by its sum one step later, so that the sum is
 * not awaited. Where a share of alpha could underflow, the sequence is computed again: floats in doubles, and what these cannot hold in logarithms,
 * which cost an exponential per pair of tags. Both keep log alpha, relative to its maximum at every position. */

#if DOUBLE
#define SPREAD 690.0              /* of scores: without forbidden pairs no share of alpha is below e^-SPREAD */
#define SPREAD_HOLES 300.0        /* with forbidden pairs, together with LEAST_SHARE: the next product is a normal number */
#define LEAST_SHARE 1e-150
#else
#define SPREAD 80.0
#define SPREAD_HOLES 34.0
#define LEAST_SHARE 1e-20
#endif

TARGET static INLINE REAL NAME(sum_lanes)(VEC x) {
    REAL lanes[LANES];
    STORE(lanes, x);
    for (i64 half = LANES / 2; half; half /= 2)
        for (i64 l = 0; l < half; l++) lanes[l] += lanes[l + half];
    return lanes[0];
}

TARGET static INLINE REAL NAME(max_lanes)(VEC x) {
    REAL lanes[LANES];
    STORE(lanes, x);
    for (i64 half = LANES / 2; half; half /= 2)
        for (i64 l = 0; l < half; l++) lanes[l] = lanes[l] > lanes[l + half] ? lanes[l] : lanes[l + half];
    return lanes[0];
}

TARGET static INLINE VEC NAME(exp_or_zero)(VEC x) {
    return SELECT(x < (REAL)LOWEST, ALL(0), NAME(exponential)(MAXIMUM(ALL(LOWEST), x)));
}

/* out = v M, M of k rows; all rows have `room` elements, of which `wide` (a multiple of LANES) are used */
TARGET static INLINE void NAME(row_product)(REAL *out, const REAL *v, const REAL *m, i64 k, i64 wide, i64 room) {
    i64 j = 0, i;
    for (; j + 4 * LANES <= wide; j += 4 * LANES) {
        VEC a = ALL(0), b = ALL(0), c = ALL(0), d = ALL(0);
        for (i = 0; i < k; i++) {
            const REAL *row = m + i * room + j;
            const VEC s = ALL(v[i]);
            a += s * LOAD(row), b += s * LOAD(row + LANES), c += s * LOAD(row + 2 * LANES), d += s * LOAD(row + 3 * LANES);
        }
        STORE(out + j, a), STORE(out + j + LANES, b), STORE(out + j + 2 * LANES, c), STORE(out + j + 3 * LANES, d);
    }
    for (; j + 2 * LANES <= wide; j += 2 * LANES) {
        VEC a = ALL(0), b = ALL(0), c = ALL(0), d = ALL(0);
        for (i = 0; i + 2 <= k; i += 2) {
            const REAL *row = m + i * room + j;
            const VEC s = ALL(v[i]), u = ALL(v[i + 1]);
            a += s * LOAD(row), b += s * LOAD(row + LANES), c += u * LOAD(row + room), d += u * LOAD(row + room + LANES);
        }
        if (i < k) a += v[i] * LOAD(m + i * room + j), b += v[i] * LOAD(m + i * room + j + LANES);
        STORE(out + j, a + c), STORE(out + j + LANES, b + d);
    }
    for (; j < wide; j += LANES) {
        VEC a = ALL(0), b = ALL(0);
        for (i = 0; i + 2 <= k; i += 2) a += v[i] * LOAD(m + i * room + j), b += v[i + 1] * LOAD(m + (i + 1) * room + j);
        if (i < k) a += v[i] * LOAD(m + i * room + j);
        STORE(out + j, a + b);
    }
}

/* The constants of a call, in rows of `room`: E, its transpose, the scores T, then e^start, e^end, start, end */
TARGET static int NAME(crf_prepare)(const void *context, i64 begin, i64 end) {
    crf *t = (crf *)context;
    const i64 k = t->k, room = t->room;
    const REAL *scores = t->transitions, *edges[2] = {t->start, t->end};
    REAL *matrix = t->constants, *transposed = matrix + k * room, *raw = transposed + k * room, *rows_ = raw + k * room;
    double top = -INFINITY, least = INFINITY, edge[2] = {-INFINITY, -INFINITY};
    (void)begin, (void)end;
    for (i64 i = 0; i < (3 * k + 4) * room; i++) matrix[i] = i >= 2 * k * room && (i < 3 * k * room || i >= (3 * k + 2) * room) ? (REAL)-INFINITY : 0;
    t->holes = 0;
    for (i64 i = 0; i < k * k; i++) {
        const double s = scores[i];
        if (s == -INFINITY) t->holes = 1;
        else top = s > top ? s : top, least = s < least ? s : least;
    }
    t->spread = top > least ? top - least : 0;
    if (top == -INFINITY) top = 0;
    for (i64 i = 0; i < k; i++)
        for (i64 j = 0; j < k; j++) {
            const REAL s = scores[i * k + j], e = (REAL)exp((double)s - top);
            matrix[i * room + j] = e, transposed[j * room + i] = e, raw[i * room + j] = s;
        }
    for (int side = 0; side < 2; side++) {
        least = INFINITY;
        for (i64 i = 0; i < k; i++) {
            const double s = edges[side][i];
            if (s == -INFINITY) t->holes = 1;
            else edge[side] = s > edge[side] ? s : edge[side], least = s < least ? s : least;
        }
        if (edge[side] - least > t->spread) t->spread = edge[side] - least;
        if (edge[side] == -INFINITY) edge[side] = 0;
        for (i64 i = 0; i < k; i++) {
            rows_[side * room + i] = (REAL)exp((double)edges[side][i] - edge[side]);
            rows_[(2 + side) * room + i] = edges[side][i];
        }
    }
    t->top = top, t->top_start = edge[0], t->top_end = edge[1];
#if !DOUBLE
    double *wide = t->wide;
    for (i64 i = 0; i < k; i++) {
        for (i64 j = 0; j < k; j++) wide[i * room + j] = wide[(k + j) * room + i] = exp(scores[i * k + j] - top);
        wide[2 * k * room + i] = exp(edges[0][i] - edge[0]), wide[(2 * k + 1) * room + i] = exp(edges[1][i] - edge[1]);
    }
#endif
    return 0;
}

/* log sum of the exponentials of a + b, k elements, the second with a stride */
TARGET static double NAME(log_sum)(const REAL *a, const REAL *b, i64 k, i64 stride) {
    double top = -INFINITY, sum = 0;
    for (i64 i = 0; i < k; i++) {
        const double s = (double)a[i] + b[i * stride];
        if (s > top || s != s) top = s;
        if (s != s) return s;
    }
    if (top == -INFINITY) return top;
    for (i64 i = 0; i < k; i++) sum += exp((double)a[i] + b[i * stride] - top);
    return top + log(sum);
}

/* subtracts the maximum, which it returns; 0 where all are -inf */
TARGET static double NAME(subtract_most)(REAL *row, i64 k) {
    REAL most = (REAL)-INFINITY;
    for (i64 j = 0; j < k; j++) most = row[j] > most ? row[j] : most;
    if (most == (REAL)-INFINITY) return 0;
    for (i64 j = 0; j < k; j++) row[j] -= most;
    return most;
}

/* log Z of one sequence in logarithms; alpha becomes log alpha */
TARGET static double NAME(crf_logs)(const crf *t, i64 n) {
    const i64 k = t->k, room = t->room;
    const REAL *raw = (const REAL *)t->constants + 2 * k * room, *start = raw + (k + 2) * room, *last = NULL;
    REAL *alpha = (REAL *)t->alpha + n * t->t * room;
    double sum = 0;
    for (i64 at = 0; at < t->t; at++) {
        if (t->mask && !t->mask[n * t->t + at]) continue;
        const REAL *e = (const REAL *)t->e + (n * t->t + at) * k;
        for (i64 j = 0; j < k; j++) alpha[j] = e[j] + (last ? (REAL)NAME(log_sum)(last, raw + j, k, room) : start[j]);
        sum += NAME(subtract_most)(alpha, k);
        last = alpha, alpha += room;
    }
    return last ? sum + NAME(log_sum)(last, start + room, k, 1) : 0;
}

#if !DOUBLE
/* e^(e - max e) of one position in doubles; returns the maximum, or NaN */
TARGET static double NAME(crf_wide_row)(const float *e, i64 k, double *x, double *spread) {
    double most = -INFINITY, least = INFINITY;
    for (i64 j = 0; j < k; j++) {
        if (e[j] != e[j]) return NAN;
        most = e[j] > most ? e[j] : most;
        if (e[j] != -INFINITY) least = e[j] < least ? e[j] : least;
    }
    if (most - least > *spread) *spread = most - least;
    for (i64 j = 0; j < k; j++) x[j] = exp(e[j] - most);
    return most;
}
#endif

/* log Z of one sequence of floats, scaled in doubles; alpha becomes log alpha. Sets *again if doubles cannot hold it either. */
TARGET static double NAME(crf_wide)(const crf *t, i64 n, int *again) {
#if DOUBLE
    (void)t, (void)n;
    *again = 1;
    return 0;
#else
    const i64 k = t->k, room = t->room;
    const double *matrix = t->wide, *start = matrix + 2 * k * room, *end = start + room;
    float *alpha = (float *)t->alpha + n * t->t * room;
    double *rows_ = malloc((size_t)(3 * room) * sizeof(double)), *last = rows_, *now = rows_ + room, *x = now + room;
    double sum = t->top_start + t->top_end, spread = 0, smallest = INFINITY, total = 0;
    i64 count = 0;
    *again = !rows_;
    for (i64 at = 0; rows_ && at < t->t; at++) {
        if (t->mask && !t->mask[n * t->t + at]) continue;
        const double most = NAME(crf_wide_row)((const float *)t->e + (n * t->t + at) * k, k, x, &spread);
        if (most - most != 0 || t->spread + spread > 300.0) {
            *again = 1;
            break;
        }
        for (i64 j = 0; j < k; j++) now[j] = count ? 0 : start[j];
        for (i64 i = 0; count && i < k; i++) {
            const double a = last[i];
            for (i64 j = 0; j < k; j++) now[j] += a * matrix[i * room + j];
        }
        total = 0;
        for (i64 j = 0; j < k; j++) now[j] *= x[j], total += now[j];
        sum += most + (count ? t->top : 0);
        if (!(total > 0)) {
            *again = 1;
            break;
        }
        double largest = 0;
        for (i64 j = 0; j < k; j++) {
            now[j] /= total, largest = now[j] > largest ? now[j] : largest;
            if (now[j] > 0 && now[j] < smallest) smallest = now[j];
        }
        sum += log(total);
        for (i64 j = 0; j < k; j++) alpha[j] = (float)log(now[j] / largest);
        double *other = now;
        now = last, last = other;
        alpha += room, count++;
    }
    double z = 0;
    for (i64 j = 0; rows_ && count && j < k; j++) z += last[j] * end[j];
    if (count && (!(z > 0) || smallest < 1e-150)) *again = 1;
    free(rows_);
    return count ? sum + log(z) : 0;
#endif
}

/* log Z of one sequence in the scaled form; sets *again if a share of alpha may have been lost */
TARGET static double NAME(crf_scaled)(const crf *t, i64 n, int *again) {
    const i64 k = t->k, room = t->room, wide = (k + LANES - 1) / LANES * LANES;
    const REAL *matrix = t->constants, *start = matrix + 3 * k * room, *end = start + room;
    REAL *alpha = (REAL *)t->alpha + n * t->t * room, *x = (REAL *)t->x + n * t->t * room, *last = NULL;
    VEC smallest = ALL(INFINITY), total = ALL(0);
    double sum = t->top_start + t->top_end, product = 1, widest_spread = 0;
    for (i64 at = 0; at < t->t; at++) {
        if (t->mask && !t->mask[n * t->t + at]) continue;
        const REAL *e = (const REAL *)t->e + (n * t->t + at) * k;
        VEC most = ALL(-INFINITY), least = ALL(INFINITY);
        i64 j = 0;
        for (; j + LANES <= k; j += LANES) {
            const VEC v = LOAD(e + j);
            most = MAXIMUM(v, most), least = MINIMUM(SELECT(v == (REAL)-INFINITY, ALL(INFINITY), v), least);
        }
        if (j < k) {
            const VEC v = NAME(load_some)(e + j, k - j, (REAL)-INFINITY);
            most = MAXIMUM(v, most), least = MINIMUM(SELECT(v == (REAL)-INFINITY, ALL(INFINITY), v), least);
        }
        REAL max = NAME(max_lanes)(most);
        const double spread = (double)max + NAME(max_lanes)(-least);
        if (spread > widest_spread) widest_spread = spread;
        if (max == (REAL)-INFINITY) {
            /* no tag is possible, or every score is NaN, which must stay visible */
            for (j = 0; j < k; j++)
                if (e[j] != e[j]) return NAN;
            return -INFINITY;
        }
        for (j = 0; j < wide; j += LANES) {
            const VEC v = j + LANES <= k ? LOAD(e + j) : NAME(load_some)(e + j, k - j, (REAL)-INFINITY);
            STORE(x + j, NAME(exp_or_zero)(v - max));
        }
        sum += max;
        REAL scale = 1;
        if (last) {
            const REAL all = NAME(sum_lanes)(total);
            if (!(all > 0)) {
                *again = all == 0;
                return NAN;
            }
            scale = 1 / all, product *= all, sum += t->top;
            if (product < 1e-200 || product > 1e200) sum += log(product), product = 1;
            NAME(row_product)(alpha, last, matrix, k, wide, room);
        }
        total = ALL(0);
        for (j = 0; j < wide; j += LANES) {
            const VEC a = (last ? LOAD(alpha + j) * scale : LOAD(start + j)) * LOAD(x + j);
            STORE(alpha + j, a);
            total += a, smallest = MINIMUM(SELECT(a > (REAL)0, a, ALL(INFINITY)), smallest);
        }
        last = alpha, alpha += room, x += room;
    }
    if (!last) return 0;
    VEC final = ALL(0);
    for (i64 j = 0; j < wide; j += LANES) final += LOAD(last + j) * LOAD(end + j);
    const REAL z = NAME(sum_lanes)(final);
    *again = z == 0 || (t->holes ? t->spread + widest_spread > SPREAD_HOLES || -NAME(max_lanes)(-smallest) < LEAST_SHARE : t->spread + widest_spread > SPREAD);
    return sum + log(product) + log((double)z);
}

/* the score of the gold path of one sequence; NaN if a tag is out of range */
TARGET static double NAME(crf_score)(const crf *t, i64 n) {
    const REAL *scores = t->transitions, *start = t->start, *end = t->end;
    const i64 k = t->k;
    double sum = 0;
    i64 before = -1;
    for (i64 at = n * t->t; at < (n + 1) * t->t; at++) {
        if (t->mask && !t->mask[at]) continue;
        const i64 y = t->y[at];
        if (y < 0 || y >= k) return NAN;
        sum += ((const REAL *)t->e)[at * k + y];
        sum += before < 0 ? start[y] : scores[before * k + y];
        before = y;
    }
    return before < 0 ? 0 : sum + end[before];
}

TARGET static int NAME(crf_forward)(const void *context, i64 begin, i64 end) {
    const crf *t = context;
    for (i64 n = begin; n < end; n++) {
        int again = 0;
        unsigned char state = CRF_SCALED;
        double z = NAME(crf_scaled)(t, n, &again);
        if (again) z = NAME(crf_wide)(t, n, &again), state = CRF_WIDE;
        if (again) z = NAME(crf_logs)(t, n), state = CRF_LOGS;
        t->state[n] = z != z ? CRF_NAN : z == -INFINITY ? CRF_NO_PATH : state;
        if (t->y) z -= NAME(crf_score)(t, n);
        if (z != z) t->state[n] = CRF_NAN;
        ((REAL *)t->out)[n] = (REAL)z;
    }
    return 0;
}

/* The sums of one sequence: de of its positions, and the weights of pairs without the factor E in `pairs`; both weighted by g.
 * xi_t(i, j) = alpha_{t-1}(i) E(i, j) w_t(j) / n_{t-1} with w = x beta / n and n = sum alpha beta. */
TARGET static void NAME(crf_backward_scaled)(const crf *t, i64 n, i64 count, const i64 *at, REAL *pairs, REAL *edges, REAL *beta, REAL *w) {
    const i64 k = t->k, room = t->room, wide = (k + LANES - 1) / LANES * LANES;
    const REAL *transposed = (const REAL *)t->constants + k * room, *end = (const REAL *)t->constants + (3 * k + 1) * room;
    const REAL g = ((const REAL *)t->g)[n];
    REAL p[4 * LANES];
    for (i64 c = count - 1; c >= 0; c--) {
        const REAL *alpha = (const REAL *)t->alpha + (n * t->t + c) * room, *x = (const REAL *)t->x + (n * t->t + c) * room;
        REAL *de = (REAL *)t->de + (n * t->t + at[c]) * k;
        if (c == count - 1) memcpy(beta, end, (size_t)wide * sizeof(REAL));
        else NAME(row_product)(beta, w, transposed, k, wide, room);
        VEC sum = ALL(0);
        for (i64 j = 0; j < wide; j += LANES) sum += LOAD(alpha + j) * LOAD(beta + j);
        const REAL inverse = 1 / NAME(sum_lanes)(sum);
        if (pairs && c < count - 1) {
            const REAL scale = g * inverse;
            for (i64 i = 0; i < k; i++) {
                const VEC s = ALL(alpha[i] * scale);
                for (i64 j = 0; j < wide; j += LANES) STORE(pairs + i * room + j, LOAD(pairs + i * room + j) + s * LOAD(w + j));
            }
        }
        for (i64 j = 0; j < wide; j += LANES) {
            const VEC a = LOAD(alpha + j), b = LOAD(beta + j) * inverse, share = a * b * g;
            /* states that no path reaches have no part in the following sums, and their beta may be out of range */
            STORE(w + j, WHERE(a > (REAL)0, b * LOAD(x + j)));
            if (j + LANES <= k) STORE(de + j, share);
            else NAME(store_some)(de + j, k - j, share);
            if (edges && (c == 0 || c == count - 1)) {
                STORE(p, share);
                for (i64 l = 0; l < LANES && j + l < k; l++) {
                    if (c == 0) edges[j + l] += p[l];
                    if (c == count - 1) edges[k + j + l] += p[l];
                }
            }
        }
    }
}

/* the same in logarithms; the weights of pairs are added to `sums` (k, k), complete */
TARGET static void NAME(crf_backward_logs)(const crf *t, i64 n, i64 count, const i64 *at, REAL *sums, REAL *edges, REAL *beta, REAL *w) {
    const i64 k = t->k, room = t->room;
    const REAL *raw = (const REAL *)t->constants + 2 * k * room, *end = raw + (k + 3) * room;
    const REAL g = ((const REAL *)t->g)[n];
    for (i64 c = count - 1; c >= 0; c--) {
        const REAL *alpha = (const REAL *)t->alpha + (n * t->t + c) * room, *e = (const REAL *)t->e + (n * t->t + at[c]) * k;
        REAL *de = (REAL *)t->de + (n * t->t + at[c]) * k;
        for (i64 i = 0; i < k; i++) beta[i] = c == count - 1 ? end[i] : (REAL)NAME(log_sum)(w, raw + i * room, k, 1);
        const double z = NAME(log_sum)(alpha, beta, k, 1);
        if (sums && c < count - 1)
            for (i64 i = 0; i < k; i++)
                for (i64 j = 0; j < k; j++) sums[i * k + j] += g * (REAL)exp((double)alpha[i] + raw[i * room + j] + w[j] - z);
        for (i64 j = 0; j < k; j++) {
            de[j] = g * (REAL)exp((double)alpha[j] + beta[j] - z);
            if (edges && c == 0) edges[j] += de[j];
            if (edges && c == count - 1) edges[k + j] += de[j];
            w[j] = e[j] + beta[j];
        }
        NAME(subtract_most)(w, k);
    }
}

/* the same for a sequence that crf_wide computed */
TARGET static void NAME(crf_backward_wide)(const crf *t, i64 n, i64 count, const i64 *at, REAL *sums, REAL *edges, double *rows_) {
#if DOUBLE
    (void)t, (void)n, (void)count, (void)at, (void)sums, (void)edges, (void)rows_;
#else
    const i64 k = t->k, room = t->room;
    const double *matrix = t->wide, *transposed = matrix + k * room, *end = matrix + (2 * k + 1) * room;
    double *beta = rows_, *w = rows_ + room, *x = w + room, *a = x + room, spread = 0;
    const double g = ((const float *)t->g)[n];
    for (i64 c = count - 1; c >= 0; c--) {
        const float *alpha = (const float *)t->alpha + (n * t->t + c) * room;
        float *de = (float *)t->de + (n * t->t + at[c]) * k;
        double sum = 0;
        for (i64 j = 0; j < k; j++) beta[j] = c == count - 1 ? end[j] : 0, a[j] = exp(alpha[j]);
        for (i64 i = 0; c < count - 1 && i < k; i++) {
            const double v = w[i];
            for (i64 j = 0; j < k; j++) beta[j] += v * transposed[i * room + j];
        }
        for (i64 j = 0; j < k; j++) sum += a[j] * beta[j];
        for (i64 i = 0; sums && c < count - 1 && i < k; i++) {
            const double v = g * a[i] / sum;
            for (i64 j = 0; j < k; j++) sums[i * k + j] += (float)(v * matrix[i * room + j] * w[j]);
        }
        NAME(crf_wide_row)((const float *)t->e + (n * t->t + at[c]) * k, k, x, &spread);
        for (i64 j = 0; j < k; j++) {
            const double b = beta[j] / sum, share = g * a[j] * b;
            de[j] = (float)share;
            if (edges && c == 0) edges[j] += (float)share;
            if (edges && c == count - 1) edges[k + j] += (float)share;
            w[j] = a[j] > 0 ? x[j] * b : 0;
        }
    }
#endif
}

/* One block of sequences per item: the gradients of T, start and end of a block are (k + 2, k), or not wanted if NULL */
TARGET static int NAME(crf_backward)(const void *context, i64 begin, i64 end) {
    const crf *t = context;
    const i64 k = t->k, room = t->room;
    REAL *scratch = malloc((size_t)((k + 2) * room) * sizeof(REAL)), *pairs = scratch + 2 * room, *w = scratch + room;
    double *wide = malloc((size_t)(4 * room) * sizeof(double));
    i64 *at = malloc((size_t)(t->t + 1) * sizeof(i64));
    if (!scratch || !at || !wide) {
        free(scratch), free(at), free(wide);
        return 1;
    }
    for (i64 block = begin; block < end; block++) {
        REAL *sums = t->dt ? (REAL *)t->dt + block * (k + 2) * k : NULL, *edges = sums ? sums + k * k : NULL;
        memset(scratch, 0, (size_t)((k + 2) * room) * sizeof(REAL));
        if (sums) memset(sums, 0, (size_t)((k + 2) * k) * sizeof(REAL));
        for (i64 n = block * t->block; n < (block + 1) * t->block && n < t->n; n++) {
            const REAL g = ((const REAL *)t->g)[n];
            REAL *de = (REAL *)t->de + n * t->t * k;
            i64 count = 0, before = -1;
            for (i64 i = 0; i < t->t; i++) {
                if (!t->mask || t->mask[n * t->t + i]) at[count++] = i;
                else memset(de + i * k, 0, (size_t)k * sizeof(REAL));
            }
            if (t->state[n] == CRF_SCALED) NAME(crf_backward_scaled)(t, n, count, at, sums ? pairs : NULL, edges, scratch, w);
            else if (t->state[n] == CRF_WIDE) NAME(crf_backward_wide)(t, n, count, at, sums, edges, wide);
            else if (t->state[n] == CRF_LOGS) NAME(crf_backward_logs)(t, n, count, at, sums, edges, scratch, w);
            else {
                const REAL fill = t->state[n] == CRF_NAN ? (REAL)NAN : 0;
                for (i64 c = 0; c < count; c++)
                    for (i64 j = 0; j < k; j++) de[at[c] * k + j] = fill;
                for (i64 j = 0; sums && j < (k + 2) * k; j++) sums[j] += fill;
            }
            for (i64 c = 0; t->y && c < count; c++) {
                const i64 y = t->y[n * t->t + at[c]];
                if (y < 0 || y >= k) break;
                de[at[c] * k + y] -= g;
                if (sums) (before < 0 ? edges : sums + before * k)[y] -= g;
                before = y;
            }
            if (sums && before >= 0) edges[k + before] -= g;
        }
        for (i64 i = 0; sums && i < k; i++)
            for (i64 j = 0; j < k; j++) sums[i * k + j] += pairs[i * room + j] * ((const REAL *)t->constants)[i * room + j];
    }
    free(scratch), free(at), free(wide);
    return 0;
}

/* max_i last(i) + T(i, j) for the tags j of one vector, and the tags i where it lies: the first of equal ones */
TARGET static INLINE VEC NAME(crf_best)(const REAL *last, const REAL *raw, i64 k, i64 room, INT *pointers) {
    VEC most = last[0] + LOAD(raw);
    IVEC which = {0};
    for (i64 i = 1; i < k; i++) {
        const VEC v = last[i] + LOAD(raw + i * room);
#if BYTES
        const IVEC more = (IVEC)(v > most);
        which = (more & ((INT)i - (IVEC){0})) | (~more & which);
        most = SELECT(more, v, most);
#else
        if (v > most) most = v, which = (INT)i;
#endif
    }
#if BYTES
    *(NAME(iuvec) *)pointers = which;
#else
    *pointers = which;
#endif
    return most;
}

/* delta_t(j) = max_i (delta_{t-1}(i) + T(i, j)) + e_t(j), then back along the largest; the kept positions of a row come first in `path` */
TARGET static int NAME(crf_viterbi)(const void *context, i64 begin, i64 end) {
    const crf *t = context;
    const i64 k = t->k, room = t->room, wide = (k + LANES - 1) / LANES * LANES;
    const REAL *raw = (const REAL *)t->constants + 2 * k * room, *start = raw + (k + 2) * room, *final = start + room;
    REAL *delta = malloc((size_t)(2 * room) * sizeof(REAL));
    INT *from = malloc((size_t)(t->t * room + 1) * sizeof(INT));
    if (!delta || !from) {
        free(delta), free(from);
        return 1;
    }
    for (i64 n = begin; n < end; n++) {
        REAL *now = delta, *last = delta + room;
        i64 count = 0, best = 0;
        for (i64 at = 0; at < t->t; at++) {
            if (t->mask && !t->mask[n * t->t + at]) continue;
            const REAL *e = (const REAL *)t->e + (n * t->t + at) * k;
            REAL *other = now;
            now = last, last = other;
            for (i64 j = 0; j < wide; j += LANES) {
                INT *pointers = from + count * room + j;
                const VEC most = count ? NAME(crf_best)(last, raw + j, k, room, pointers) : LOAD(start + j);
                STORE(now + j, most + (j + LANES <= k ? LOAD(e + j) : NAME(load_some)(e + j, k - j, 0)));
            }
            count++;
        }
        i64 *path = t->path + n * t->t;
        REAL most = count ? now[0] + final[0] : 0;
        for (i64 j = 1; count && j < k; j++)
            if (now[j] + final[j] > most) most = now[j] + final[j], best = j;
        for (i64 c = count - 1; c >= 0; c--) path[c] = best, best = c ? (i64)from[c * room + best] : 0;
        for (i64 c = count; c < t->t; c++) path[c] = -1;
        ((REAL *)t->out)[n] = most;
    }
    free(delta), free(from);
    return 0;
}

#undef SPREAD
#undef SPREAD_HOLES
#undef LEAST_SHARE
