/* The next hypotheses of a beam search, selected row by row from the candidates of all hypotheses of a sentence. Scalar, so one instance per real
 * type; see simd_instance.h for the macros. */

static INLINE REAL NAME(gap)(REAL kept, REAL dropped) {
    const REAL gap = (REAL)(fabs((double)(kept - dropped)) / (1 + fabs((double)dropped)));
    return gap < (REAL)INFINITY ? gap : (REAL)INFINITY; /* the difference of infinities is NaN, and no decision */
}

static int NAME(continuations)(const void *context, i64 begin, i64 end) {
    const candidates *t = context;
    const i64 n = t->n, k = t->k, m = t->greedy + t->others;
    /* one more than are kept, for the margin */
    REAL *value = malloc((size_t)(t->others + 1) * (sizeof(REAL) + sizeof(i64)) + sizeof(i64));
    if (!value) return 1;
    i64 *place = (i64 *)(((uintptr_t)(value + t->others + 1) + sizeof(i64) - 1) / sizeof(i64) * sizeof(i64));
    for (i64 r = begin; r < end; r++) {
        const REAL *log_p = (const REAL *)t->log_p + r * n * k, *last = (const REAL *)t->end + r * n, *sum = (const REAL *)t->log_prob + r * n;
        const i64 *token = t->token + r * n * k;
        REAL *ends = (REAL *)t->ends + r * n, *going = (REAL *)t->going + r * m, margin = (REAL)INFINITY;
        i64 *slot = t->slot + r * m, *next = t->next + r * m, found = 0;
        for (i64 i = 0; t->others && i < n * k; i++) {
            const REAL x = token[i] == t->eos || (t->greedy && !i) ? (REAL)-INFINITY : log_p[i] + sum[i / k];
            i64 at = found;
            if (found <= t->others) found++;
            else if (x > value[--at]) {}
            else continue;
            /* of equals the first stays ahead */
            for (; at > 0 && x > value[at - 1]; at--) value[at] = value[at - 1], place[at] = place[at - 1];
            value[at] = x, place[at] = i;
        }
        if (t->greedy) {
            going[0] = token[0] == t->eos ? (REAL)-INFINITY : log_p[0] + sum[0], slot[0] = 0, next[0] = token[0];
            if (k > 1) margin = NAME(gap)(log_p[0] + sum[0], log_p[1] + sum[0]);
        }
        for (i64 j = 0; j < t->others; j++) going[t->greedy + j] = value[j], slot[t->greedy + j] = place[j] / k, next[t->greedy + j] = token[place[j]];
        if (t->others && found > t->others) {
            const REAL gap = NAME(gap)(value[t->others - 1], value[t->others]);
            margin = gap < margin ? gap : margin;
        }
        for (i64 j = 0; j < n; j++) {
            const REAL x = last[j] + sum[j];
            int counts = t->greedy && !j && token[0] == t->eos;
            if (t->others) {
                const REAL gap = NAME(gap)(x, value[t->others - 1]);
                margin = gap < margin ? gap : margin;
                counts |= x >= value[t->others - 1];
            }
            ends[j] = counts ? x : (REAL)-INFINITY;
            t->seen[0] |= ends[j] > (REAL)-INFINITY;
        }
        for (i64 j = 0; j < m; j++) t->seen[1] |= going[j] == (REAL)-INFINITY;
        ((REAL *)t->margin)[r] = margin;
    }
    free(value);
    return 0;
}
