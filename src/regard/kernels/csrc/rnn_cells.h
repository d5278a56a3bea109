/* Recurrent cells, one step of m rows: the operations after the matrix products, forward and backward. See simd_instance.h for the macros. */

#if DOUBLE
#define FLAT 20.0 /* where tanh rounds to 1 */
#else
#define FLAT 9.5f
#endif

TARGET static INLINE VEC NAME(read)(const REAL *from, i64 left) {
    return left >= LANES ? LOAD(from) : NAME(load_some)(from, left, 0);
}

/* load from a vector that may be NULL */
TARGET static INLINE VEC NAME(read_any)(const REAL *from, i64 at, i64 left) {
    return from ? NAME(read)(from + at, left) : ALL(0);
}

TARGET static INLINE void NAME(write)(REAL *to, i64 left, VEC x) {
    if (left >= LANES) STORE(to, x);
    else NAME(store_some)(to, left, x);
}

/* 1 / (1 + e^-x); beyond the bound it rounds to 0 or 1, and NaN stays NaN */
TARGET static INLINE VEC NAME(sigmoid)(VEC x) {
    x = MINIMUM(ALL(-LOWEST), MAXIMUM(ALL(LOWEST), x));
    return RECIPROCAL((REAL)1 + NAME(exponential)(-x));
}

/* (e^2x - 1) / (e^2x + 1): zero at zero; beyond the bound it rounds to 1 */
TARGET static INLINE VEC NAME(tangent)(VEC x) {
    x = MINIMUM(ALL(FLAT), MAXIMUM(ALL(-FLAT), x));
    const VEC e = NAME(exponential)(x + x);
    return (e - (REAL)1) * RECIPROCAL(e + (REAL)1);
}

/* r, z = sigmoid(x + p); n = tanh(x + r p); h = n + z (before - n); kept: r, z, p_n, n */
TARGET static int NAME(gru)(const void *context, i64 begin, i64 end) {
    const cells *t = context;
    const i64 d = t->d;
    const REAL *bias = t->bias;
    for (i64 row = begin; row < end; row++) {
        const REAL *x = (const REAL *)t->x + row * t->x_row, *p = (const REAL *)t->p + row * 3 * d;
        const REAL *before = (const REAL *)t->before + row * t->before_row;
        REAL *kept = (REAL *)t->kept + row * 4 * d, *h = (REAL *)t->h + row * d;
        REAL *next = row < t->next_rows ? (REAL *)t->next + row * d : NULL;
        for (i64 j = 0; j < d; j += LANES) {
            const i64 left = d - j;
            VEC r = NAME(sigmoid)(NAME(read)(x + j, left) + NAME(read)(p + j, left) + NAME(read_any)(bias, j, left));
            VEC z = NAME(sigmoid)(NAME(read)(x + d + j, left) + NAME(read)(p + d + j, left) + NAME(read_any)(bias, d + j, left));
            VEC u = NAME(read)(p + 2 * d + j, left) + NAME(read_any)(bias, 2 * d + j, left);
            VEC n = NAME(tangent)(NAME(read)(x + 2 * d + j, left) + r * u);
            VEC out = n + z * (NAME(read)(before + j, left) - n);
            NAME(write)(kept + j, left, r);
            NAME(write)(kept + d + j, left, z);
            NAME(write)(kept + 2 * d + j, left, u);
            NAME(write)(kept + 3 * d + j, left, n);
            NAME(write)(h + j, left, out);
            if (next) NAME(write)(next + j, left, out);
        }
    }
    return 0;
}

/* from dh = g + carry: the gradients of x and p, and the carry of the previous state without its part through p */
TARGET static int NAME(gru_backward)(const void *context, i64 begin, i64 end) {
    const cells *t = context;
    const i64 d = t->d;
    for (i64 row = begin; row < end; row++) {
        const REAL *kept = (const REAL *)t->kept + row * 4 * d, *before = (const REAL *)t->before + row * t->before_row;
        const REAL *g = t->g ? (const REAL *)t->g + row * d : NULL;
        REAL *carry = (REAL *)t->h + row * d, *dx = (REAL *)t->dx + row * 3 * d, *dp = (REAL *)t->dp + row * 3 * d;
        for (i64 j = 0; j < d; j += LANES) {
            const i64 left = d - j;
            VEC r = NAME(read)(kept + j, left), z = NAME(read)(kept + d + j, left);
            VEC u = NAME(read)(kept + 2 * d + j, left), n = NAME(read)(kept + 3 * d + j, left);
            VEC dh = NAME(read)(carry + j, left);
            if (g) dh += NAME(read)(g + j, left);
            VEC dn = dh * ((REAL)1 - z) * ((REAL)1 - n * n);
            VEC dz = dh * (NAME(read)(before + j, left) - n) * z * ((REAL)1 - z);
            VEC dr = dn * u * r * ((REAL)1 - r);
            NAME(write)(dx + j, left, dr);
            NAME(write)(dx + d + j, left, dz);
            NAME(write)(dx + 2 * d + j, left, dn);
            NAME(write)(dp + j, left, dr);
            NAME(write)(dp + d + j, left, dz);
            NAME(write)(dp + 2 * d + j, left, dn * r);
            NAME(write)(carry + j, left, dh * z);
        }
    }
    return 0;
}

/* i, f, o = sigmoid(x + p), g = tanh(x + p); c = f c_before + i g; h = o tanh(c); kept: i, f, g, o, tanh(c) */
TARGET static int NAME(lstm)(const void *context, i64 begin, i64 end) {
    const cells *t = context;
    const i64 d = t->d;
    const REAL *bias = t->bias;
    for (i64 row = begin; row < end; row++) {
        const REAL *x = (const REAL *)t->x + row * t->x_row, *p = (const REAL *)t->p + row * 4 * d;
        const REAL *before = (const REAL *)t->before + row * t->before_row;
        REAL *kept = (REAL *)t->kept + row * 5 * d, *h = (REAL *)t->h + row * d, *c = (REAL *)t->c + row * d;
        REAL *next = row < t->next_rows ? (REAL *)t->next + row * d : NULL;
        REAL *next_c = next ? (REAL *)t->next_c + row * d : NULL;
        for (i64 j = 0; j < d; j += LANES) {
            const i64 left = d - j;
            VEC gate[4];
            for (int k = 0; k < 4; k++)
                gate[k] = NAME(read)(x + k * d + j, left) + NAME(read)(p + k * d + j, left) + NAME(read_any)(bias, k * d + j, left);
            VEC i = NAME(sigmoid)(gate[0]), f = NAME(sigmoid)(gate[1]), g = NAME(tangent)(gate[2]), o = NAME(sigmoid)(gate[3]);
            VEC cell = f * NAME(read)(before + j, left) + i * g, flat = NAME(tangent)(cell), out = o * flat;
            NAME(write)(kept + j, left, i);
            NAME(write)(kept + d + j, left, f);
            NAME(write)(kept + 2 * d + j, left, g);
            NAME(write)(kept + 3 * d + j, left, o);
            NAME(write)(kept + 4 * d + j, left, flat);
            NAME(write)(c + j, left, cell);
            NAME(write)(h + j, left, out);
            if (next) {
                NAME(write)(next + j, left, out);
                NAME(write)(next_c + j, left, cell);
            }
        }
    }
    return 0;
}

/* from dh = g + carry and dc: the gradient of x and p, which is the same, and dc of the previous cell; dh of the previous step comes through p alone */
TARGET static int NAME(lstm_backward)(const void *context, i64 begin, i64 end) {
    const cells *t = context;
    const i64 d = t->d;
    for (i64 row = begin; row < end; row++) {
        const REAL *kept = (const REAL *)t->kept + row * 5 * d, *before = (const REAL *)t->before + row * t->before_row;
        const REAL *grad = t->g ? (const REAL *)t->g + row * d : NULL;
        REAL *carry = (REAL *)t->h + row * d, *carry_c = (REAL *)t->c + row * d, *dx = (REAL *)t->dx + row * 4 * d;
        for (i64 j = 0; j < d; j += LANES) {
            const i64 left = d - j;
            VEC i = NAME(read)(kept + j, left), f = NAME(read)(kept + d + j, left), g = NAME(read)(kept + 2 * d + j, left);
            VEC o = NAME(read)(kept + 3 * d + j, left), flat = NAME(read)(kept + 4 * d + j, left);
            VEC dh = NAME(read)(carry + j, left);
            if (grad) dh += NAME(read)(grad + j, left);
            VEC dc = NAME(read)(carry_c + j, left) + dh * o * ((REAL)1 - flat * flat);
            NAME(write)(dx + j, left, dc * g * i * ((REAL)1 - i));
            NAME(write)(dx + d + j, left, dc * NAME(read)(before + j, left) * f * ((REAL)1 - f));
            NAME(write)(dx + 2 * d + j, left, dc * i * ((REAL)1 - g * g));
            NAME(write)(dx + 3 * d + j, left, dh * flat * o * ((REAL)1 - o));
            NAME(write)(carry + j, left, ALL(0));
            NAME(write)(carry_c + j, left, dc * f);
        }
    }
    return 0;
}

/* A matrix (n, k) by strides in panels of 2 LANES of n, for `product`; the last panel is padded with zeros. Returns NULL if there is no memory. */
TARGET static void *NAME(packed)(const void *matrix, i64 n, i64 k, i64 n_stride, i64 k_stride) {
    const i64 width = 2 * LANES, panels = (n + width - 1) / width;
    REAL *to = malloc((size_t)(panels * k * width) * sizeof(REAL));
    const REAL *u = matrix;
    if (!to) return NULL;
    for (i64 p = 0; p < panels; p++)
        for (i64 l = 0; l < width; l++) {
            const i64 i = p * width + l;
            REAL *column = to + p * k * width + l;
            for (i64 j = 0; j < k; j++) column[j * width] = i < n ? u[i * n_stride + j * k_stride] : 0;
        }
    return to;
}

/* out (m, n) = or += a (m, k) times a packed matrix: TILE rows with a panel in registers, as in vocab_topk.h */
TARGET static INLINE void NAME(product)(const REAL *a, const REAL *packed, REAL *out, i64 m, i64 n, i64 k, const int add) {
    for (i64 column = 0; column < n; column += 2 * LANES) {
        for (i64 row = 0; row < m; row += TILE) {
            const REAL *lines[TILE];
            VEC c[2 * TILE];
            for (int i = 0; i < TILE; i++) lines[i] = a + (row + i < m ? row + i : m - 1) * k;
            NAME(multiply)(lines, packed + column * k, k, TILE, 2, c);
            for (i64 i = 0; i < TILE && row + i < m; i++)
                for (i64 v = 0; v < 2 && column + v * LANES < n; v++) {
                    REAL *to = out + (row + i) * n + column + v * LANES;
                    const i64 left = n - column - v * LANES;
                    NAME(write)(to, left, add ? NAME(read)(to, left) + c[2 * i + v] : c[2 * i + v]);
                }
        }
    }
}

/* An item is TILE sequences, over all their steps. */
TARGET static int NAME(sequence)(const void *context, i64 begin, i64 end) {
    const sequence *t = context;
    const i64 d = t->cell.d, wide = t->gates * d, first = begin * TILE;
    for (i64 s = 0; s < t->steps; s++) {
        const i64 m = t->m[s], last = end * TILE < m ? end * TILE : m, at = t->at[s];
        if (last <= first) continue;
        cells one = t->cell;
        REAL *past = t->past, *before = (REAL *)t->cell.before + at * d, *before_c = t->lstm ? (REAL *)t->cell.next_c + at * d : NULL;
        NAME(product)(before + first * d, t->packed, past + first * wide, last - first, wide, d, 0);
        one.x = (const REAL *)one.x + at * wide, one.x_row = wide, one.p = past, one.before = t->lstm ? before_c : before, one.before_row = d;
        one.kept = (REAL *)one.kept + (t->back ? at : 0) * (t->lstm ? 5 : 4) * d, one.h = (REAL *)one.h + at * d;
        one.next_rows = 0;
        if (t->lstm) one.c = (REAL *)one.c + at * d;
        if (s + 1 < t->steps) {
            one.next_rows = t->m[s + 1] < m ? t->m[s + 1] : m;
            one.next = (REAL *)one.next + t->at[s + 1] * d;
            if (t->lstm) one.next_c = (REAL *)one.next_c + t->at[s + 1] * d;
        }
        t->lstm ? NAME(lstm)(&one, first, last) : NAME(gru)(&one, first, last);
    }
    return 0;
}

TARGET static int NAME(sequence_backward)(const void *context, i64 begin, i64 end) {
    const sequence *t = context;
    const i64 d = t->cell.d, wide = t->gates * d, first = begin * TILE;
    for (i64 s = t->steps - 1; s >= 0; s--) {
        const i64 m = t->m[s], last = end * TILE < m ? end * TILE : m, at = t->at[s];
        if (last <= first) continue;
        cells one = t->cell;
        one.g = (const REAL *)one.g + at * d, one.before = (const REAL *)one.before + at * d, one.before_row = d;
        one.kept = (REAL *)one.kept + at * (t->lstm ? 5 : 4) * d, one.dx = (REAL *)one.dx + at * wide;
        if (!t->lstm) one.dp = (REAL *)one.dp + at * wide;
        t->lstm ? NAME(lstm_backward)(&one, first, last) : NAME(gru_backward)(&one, first, last);
        const REAL *back = t->lstm ? one.dx : one.dp;
        NAME(product)(back + first * wide, t->packed, (REAL *)one.h + first * d, last - first, d, wide, 1);
    }
    return 0;
}
#undef FLAT
