/* The Gaussian error unit in its form with tanh  (Hendrycks & Gimpel 2016). See simd_instance.h for the macros. */

/* σ(v), v = sqrt(8/π) (x + 0.044715 x³) */
TARGET static INLINE VEC NAME(gelu_gate)(VEC x) {
    const VEC v = (REAL)1.5957691216057308 * (x + (REAL)0.044715 * x * x * x);
    return RECIPROCAL((REAL)1 + NAME(exponential)(-MINIMUM(ALL(-LOWEST), MAXIMUM(ALL(LOWEST), v))));
}

/* y = x σ(v) */
TARGET static void NAME(gelu_values)(const REAL *x, REAL *y, i64 count) {
    i64 i = 0;
    for (; i + LANES <= count; i += LANES) {
        const VEC value = LOAD(x + i);
        STORE(y + i, value * NAME(gelu_gate)(value));
    }
    if (i < count) {
        const VEC value = NAME(load_some)(x + i, count - i, 0);
        NAME(store_some)(y + i, count - i, value * NAME(gelu_gate)(value));
    }
}

/* dy/dx = s + x s (1 - s) v', s = σ(v) */
TARGET static INLINE VEC NAME(gelu_slope)(VEC x) {
    const VEC s = NAME(gelu_gate)(x);
    const VEC inner = (REAL)1.5957691216057308 * ((REAL)1 + (REAL)0.134145 * x * x);
    return s + x * s * ((REAL)1 - s) * inner;
}

/* An item is a block of elements; with g its gradient, otherwise its value. */
TARGET static int NAME(gelu)(const void *context, i64 begin, i64 end) {
    const activations *t = context;
    for (i64 item = begin; item < end; item++) {
        const i64 first = item * ACTIVATION_BLOCK, n = t->n - first < ACTIVATION_BLOCK ? t->n - first : ACTIVATION_BLOCK;
        const REAL *x = (const REAL *)t->x + first, *g = t->g ? (const REAL *)t->g + first : NULL;
        REAL *out = (REAL *)t->out + first;
        if (!g) {
            NAME(gelu_values)(x, out, n);
            continue;
        }
        i64 i = 0;
        for (; i + LANES <= n; i += LANES) STORE(out + i, LOAD(g + i) * NAME(gelu_slope)(LOAD(x + i)));
        if (i < n) {
            const VEC slope = NAME(gelu_slope)(NAME(load_some)(x + i, n - i, 0));
            NAME(store_some)(out + i, n - i, NAME(load_some)(g + i, n - i, 0) * slope);
        }
    }
    return 0;
}
