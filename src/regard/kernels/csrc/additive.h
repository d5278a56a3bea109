/* Additive score: s_ij = sum_d w_d tanh(a_id + b_jd) with tanh(x + y) = 1 - 2 r, r = 1 / (1 + e^{2x} e^{2y}), and
 * d tanh = 4 r (1 - r). Rows outside INRANGE (or not finite) are flagged and take the direct form, one exponential per element.
 */

#ifndef ROWS
#define ROWS 4 /* queries per block: enough accumulators to keep two multipliers busy */
#endif

/* r = 1 / (1 + e^{2 (x + y)}) for any x and y */
TARGET static INLINE VEC NAME(direct)(VEC x, VEC y) {
    VEC z = x + y;
    z = MINIMUM(ALL(SATURATED), z);
    z = MAXIMUM(ALL(-SATURATED), z);
    return RECIPROCAL(NAME(exponential)(z + z) + (REAL)1);
}

/* sum_d w_d tanh(a_d + b_d), one query and one key */
TARGET static REAL NAME(score)(const REAL *a, const REAL *b, const REAL *w, i64 d, REAL w_sum) {
    VEC sum = ALL(0);
    i64 c = 0;
    for (; c + LANES <= d; c += LANES) sum += LOAD(w + c) * NAME(direct)(LOAD(a + c), LOAD(b + c));
    if (c < d)
        sum += NAME(load_some)(w + c, d - c, 0)
               * NAME(direct)(NAME(load_some)(a + c, d - c, 0), NAME(load_some)(b + c, d - c, 0));
    return w_sum - 2 * NAME(total)(sum);
}

/* exponentials of a tile of keys, laid out [d][LANES]; 1 if all of them are in range */
TARGET static int NAME(pack_tile)(const REAL *b, i64 b_k, i64 count, i64 d, const unsigned char *allowed, i64 stride,
                                  REAL *tile) {
    for (i64 l = 0; l < LANES; l++) {
        /* a key that no query may attend to is packed as zeros, so its content has no effect */
        if (l < count && (!allowed || allowed[l * stride]))
            for (i64 c = 0; c < d; c++) tile[c * LANES + l] = b[l * b_k + c];
        else
            for (i64 c = 0; c < d; c++) tile[c * LANES + l] = 0;
    }
    IVEC outside = {0};
    for (i64 c = 0; c < d; c++) {
        VEC x = LOAD(tile + c * LANES);
        outside |= COUNT(x < (REAL)-INRANGE) | COUNT(x > (REAL)INRANGE) | COUNT(x != x);
        STORE(tile + c * LANES, NAME(exponential)(x + x));
    }
    return NAME(itotal)(outside) == 0;
}

/* exponentials of ROWS queries, laid out [d][ROWS] */
TARGET static int NAME(pack_queries)(const REAL *a, i64 a_q, i64 rows, i64 d, REAL *to) {
    for (i64 r = 0; r < ROWS; r++)
        for (i64 c = 0; c < d; c++) to[c * ROWS + r] = r < rows ? a[r * a_q + c] : (REAL)0;
    int fine = 1;
    i64 c = 0, size = d * ROWS;
    for (; c < size; c++) fine &= to[c] >= (REAL)-INRANGE && to[c] <= (REAL)INRANGE;
    for (c = 0; c + LANES <= size; c += LANES) STORE(to + c, NAME(exponential)(LOAD(to + c) + LOAD(to + c)));
    if (c < size) {
        VEC x = NAME(load_some)(to + c, size - c, 0);
        NAME(store_some)(to + c, size - c, NAME(exponential)(x + x));
    }
    return fine;
}

/* scores of ROWS queries and LANES keys from their exponentials */
TARGET static INLINE void NAME(tile_scores)(const REAL *ea, const REAL *eb, const REAL *w, i64 d, REAL w_sum, VEC out[ROWS]) {
    VEC t0 = ALL(0), t1 = ALL(0), t2 = ALL(0), t3 = ALL(0);
    /* sums of sums of 32: half the rounding error of one long sum */
    for (i64 from = 0; from < d; from += 32) {
        const i64 to = d - from < 32 ? d : from + 32;
        VEC s0 = ALL(0), s1 = ALL(0), s2 = ALL(0), s3 = ALL(0);
        for (i64 c = from; c < to; c++) {
            VEC e = LOAD(eb + c * LANES), weight = ALL(w[c]);
            const REAL *x = ea + c * ROWS;
            s0 += weight * RECIPROCAL(e * ALL(x[0]) + (REAL)1);
            s1 += weight * RECIPROCAL(e * ALL(x[1]) + (REAL)1);
            s2 += weight * RECIPROCAL(e * ALL(x[2]) + (REAL)1);
            s3 += weight * RECIPROCAL(e * ALL(x[3]) + (REAL)1);
        }
        t0 += s0, t1 += s1, t2 += s2, t3 += s3;
    }
    out[0] = w_sum - (REAL)2 * t0;
    out[1] = w_sum - (REAL)2 * t1;
    out[2] = w_sum - (REAL)2 * t2;
    out[3] = w_sum - (REAL)2 * t3;
}

/* items: blocks of ROWS queries, batch by batch */
TARGET static int NAME(forward)(const void *context, i64 begin, i64 end) {
    const additive *t = context;
    const REAL *w = t->w;
    const i64 q = t->q, k = t->k, d = t->d, blocks = (q + ROWS - 1) / ROWS, tiles = (k + LANES - 1) / LANES;
    /* with a single query one exponential per key costs as much as one per element, which needs no buffer */
    const int direct = q < 2;
    double exact = 0;
    for (i64 c = 0; c < d; c++) exact += w[c];
    const REAL w_sum = (REAL)exact;
    REAL *eb = NULL, *ea = NULL;
    unsigned char *fine = NULL;
    if (!direct) {
        eb = malloc((size_t)(tiles * LANES + ROWS) * (d + 1) * sizeof(REAL));
        fine = malloc((size_t)tiles + 1);
        if (!eb || !fine) { free(eb); free(fine); return 1; }
        ea = eb + tiles * LANES * d;
    }
    i64 packed = -1;
    for (i64 item = begin; item < end; item++) {
        const i64 n = item / blocks, i0 = item % blocks * ROWS, rows = q - i0 < ROWS ? q - i0 : ROWS;
        const REAL *a = (const REAL *)t->a + n * t->a_n + i0 * t->a_q, *b = (const REAL *)t->b + n * t->b_n;
        const unsigned char *allowed = t->allowed ? t->allowed + n * t->m_n : NULL;
        REAL *out = (REAL *)t->p + (n * q + i0) * k;
        if (!direct && packed != n) {
            const unsigned char *same = t->m_q == 0 ? allowed : NULL;
            for (i64 u = 0; u < tiles; u++) {
                i64 j = u * LANES, count = k - j < LANES ? k - j : LANES;
                fine[u] = (unsigned char)NAME(pack_tile)(b + j * t->b_k, t->b_k, count, d, same ? same + j * t->m_k : NULL,
                                                         t->m_k, eb + j * d);
            }
            packed = n;
        }
        if (allowed) allowed += i0 * t->m_q;
        const int fine_a = !direct && NAME(pack_queries)(a, t->a_q, rows, d, ea);
        for (i64 u = 0; u < tiles; u++) {
            const i64 j = u * LANES, count = k - j < LANES ? k - j : LANES;
            if (allowed) {
                unsigned char any = 0;
                for (i64 r = 0; r < rows; r++)
                    for (i64 l = 0; l < count; l++) any |= allowed[r * t->m_q + (j + l) * t->m_k];
                if (!any) continue;
            }
            if (fine_a && fine[u]) {
                VEC s[ROWS];
                NAME(tile_scores)(ea, eb + j * d, w, d, w_sum, s);
                for (i64 r = 0; r < rows; r++) {
                    if (count == LANES) STORE(out + r * k + j, s[r]);
                    else NAME(store_some)(out + r * k + j, count, s[r]);
                }
            } else
                for (i64 r = 0; r < rows; r++)
                    for (i64 l = 0; l < count; l++)
                        if (!allowed || allowed[r * t->m_q + (j + l) * t->m_k])
                            out[r * k + j + l] = NAME(score)(a + r * t->a_q, b + (j + l) * t->b_k, w, d, w_sum);
        }
        if (t->lse)
            for (i64 r = 0; r < rows; r++)
                ((REAL *)t->lse)[n * q + i0 + r] = NAME(softmax)(out + r * k, k, allowed ? allowed + r * t->m_q : NULL, t->m_k);
    }
    free(eb);
    free(fine);
    return 0;
}

/* Items: (batch, LANES columns of d). Columns share nothing but the gradient of the scores, so no sum crosses threads.
 * da_id = 4 w_d sum_j g_ij r (1 - r), db_jd the same over i, dw_d = sum_ij g_ij (1 - 2 r). A pair whose g is 0 is skipped,
 * so the content of a masked key has no effect here either. */
TARGET static int NAME(backward)(const void *context, i64 begin, i64 end) {
    const additive *t = context;
    const i64 q = t->q, k = t->k, d = t->d, columns = (d + LANES - 1) / LANES, padded = (q + ROWS - 1) / ROWS * ROWS;
    /* a single query goes pair by pair, as in `forward` */
    const int direct = q < 2;
    /* exponentials and values of queries and keys, gradient of keys, a row of zeros for queries past the end */
    REAL *room = malloc(((size_t)(2 * padded + 3 * k + 1) * LANES + k) * sizeof(REAL));
    unsigned char *fine = malloc((size_t)(padded + k + 1));
    if (!room || !fine) { free(room); free(fine); return 1; }
    REAL *ea = room, *av = ea + padded * LANES, *eb = av + padded * LANES, *bv = eb + k * LANES, *gb = bv + k * LANES;
    REAL *none = gb + k * LANES;
    memset(none, 0, (size_t)k * sizeof(REAL));
    for (i64 item = begin; item < end; item++) {
        const i64 n = item / columns, c = item % columns * LANES, count = d - c < LANES ? d - c : LANES;
        const REAL *a = (const REAL *)t->a + n * t->a_n + c, *b = (const REAL *)t->b + n * t->b_n + c;
        const REAL *g = (const REAL *)t->g + n * q * k;
        for (i64 i = 0; i < padded + k; i++) {
            const REAL *from = i < padded ? a + i * t->a_q : b + (i - padded) * t->b_k;
            VEC x = i >= q && i < padded ? ALL(0) : count == LANES ? LOAD(from) : NAME(load_some)(from, count, 0);
            IVEC outside = COUNT(x < (REAL)-INRANGE) | COUNT(x > (REAL)INRANGE) | COUNT(x != x);
            fine[i] = !direct && NAME(itotal)(outside) == 0;
            REAL *to = i < padded ? ea + i * LANES : eb + (i - padded) * LANES;
            STORE(to + (i < padded ? padded : k) * LANES, x);
            if (!direct) STORE(to, NAME(exponential)(x + x));
        }
        const unsigned char *fine_b = fine + padded;
        const VEC scale = (REAL)4 * NAME(load_some)((const REAL *)t->w + c, count, 0);
        VEC dw = ALL(0);
        REAL g_sum = 0;
        memset(gb, 0, (size_t)(k * LANES) * sizeof(REAL));
        for (i64 i = 0; i < q; i += ROWS) {
            const REAL *g0 = g + i * k, *g1 = i + 1 < q ? g0 + k : none, *g2 = i + 2 < q ? g0 + 2 * k : none;
            const REAL *g3 = i + 3 < q ? g0 + 3 * k : none;
            const int fine_a = fine[i] & fine[i + 1] & fine[i + 2] & fine[i + 3];
            const VEC e0 = LOAD(ea + i * LANES), e1 = LOAD(ea + (i + 1) * LANES), e2 = LOAD(ea + (i + 2) * LANES);
            const VEC e3 = LOAD(ea + (i + 3) * LANES);
            VEC s0 = ALL(0), s1 = ALL(0), s2 = ALL(0), s3 = ALL(0), wr = ALL(0);
            REAL sum = 0;
            for (i64 j = 0; j < k; j++) {
                if (g0[j] == 0 && g1[j] == 0 && g2[j] == 0 && g3[j] == 0) continue;
                sum += (g0[j] + g1[j]) + (g2[j] + g3[j]);
                VEC key = LOAD(gb + j * LANES), r, gr;
                if (fine_a & fine_b[j]) {
                    const VEC e = LOAD(eb + j * LANES);
                    r = RECIPROCAL(e * e0 + (REAL)1), gr = ALL(g0[j]) * r, wr += gr, gr -= gr * r, s0 += gr, key += gr;
                    r = RECIPROCAL(e * e1 + (REAL)1), gr = ALL(g1[j]) * r, wr += gr, gr -= gr * r, s1 += gr, key += gr;
                    r = RECIPROCAL(e * e2 + (REAL)1), gr = ALL(g2[j]) * r, wr += gr, gr -= gr * r, s2 += gr, key += gr;
                    r = RECIPROCAL(e * e3 + (REAL)1), gr = ALL(g3[j]) * r, wr += gr, gr -= gr * r, s3 += gr, key += gr;
                } else {
                    const VEC y = LOAD(bv + j * LANES);
#define PAIR(row, grad, into)                                       \
    if (grad[j] != 0) {                                             \
        r = NAME(direct)(LOAD(av + (i + row) * LANES), y);          \
        gr = ALL(grad[j]) * r, wr += gr, gr -= gr * r, into += gr, key += gr; \
    }
                    PAIR(0, g0, s0) PAIR(1, g1, s1) PAIR(2, g2, s2) PAIR(3, g3, s3)
#undef PAIR
                }
                STORE(gb + j * LANES, key);
            }
            dw += wr;
            g_sum += sum;
            const VEC grads[ROWS] = {s0, s1, s2, s3};
            for (i64 r = 0; r < ROWS && i + r < q; r++)
                NAME(store_some)((REAL *)t->da + (n * q + i + r) * d + c, count, grads[r] * scale);
        }
        for (i64 j = 0; j < k; j++)
            NAME(store_some)((REAL *)t->db + (n * k + j) * d + c, count, LOAD(gb + j * LANES) * scale);
        NAME(store_some)((REAL *)t->dw + n * d + c, count, g_sum - (REAL)2 * dw);
    }
    free(room);
    free(fine);
    return 0;
}
