/* The k most probable words of softmax(W x + b) with 8-bit weights. See vocab_topk.h for the running result, and simd_instance.h for the macros.
 *
 * A logit of 8-bit weights is an integer sum, the same whatever its neighbours are; the selection handles the words of one state at a time. */

/* adds the logits of words first to first + count to the running result of one state; logits has room for whole vectors */
TARGET static void NAME(take8)(const vocabulary *t, NAME(known) *of, i64 row, i64 first, i64 count, REAL *logits) {
    const i64 whole = (count + LANES - 1) / LANES * LANES;
    for (i64 i = count; i < whole; i++) logits[i] = (REAL)-INFINITY;
    if (t->also >= first && t->also < first + count) of->said[row] = logits[t->also - first];
    VEC tops = LOAD(logits), more = ALL(0);
    for (i64 i = LANES; i < whole; i += LANES) tops = MAXIMUM(LOAD(logits + i), tops);
    /* NaN compares greater than nothing; the sum shows it */
    REAL lanes[LANES], top = (REAL)-INFINITY;
    STORE(lanes, tops);
    for (i64 l = 0; l < LANES; l++) top = lanes[l] > top ? lanes[l] : top;
    if (top > of->most[row]) {
        REAL shares[LANES];
        STORE(shares, NAME(share)(ALL(of->most[row] - top)));
        of->sum[row] *= shares[0];
        of->most[row] = top;
    }
    for (i64 i = 0; i < whole; i += LANES) more += NAME(share)(LOAD(logits + i) - of->most[row]);
    of->sum[row] += SUM(more);
    if (!(top > of->least[row])) return;
    for (i64 i = 0; i < whole; i += LANES)
        for (uint64_t bits = ABOVE(LOAD(logits + i), ALL(of->least[row])); bits; bits &= bits - 1) {
            const i64 word = i + LOWEST_BIT(bits);
            NAME(insert)(t, of, row, first + word, logits[word]);
        }
}

/* An item is a span of words for a block of states, as in vocab_topk.h. */
TARGET static int NAME(likeliest8)(const void *context, i64 begin, i64 end) {
    const vocabulary *t = context;
    enum { WORDS8 = TILE8_PANELS * PANEL8 };
    const i64 d = t->d, k = t->k, padded = (d + 3) / 4 * 4;
    char *scratch = malloc((size_t)(t->block * (padded + 8)));
    if (!scratch) return 1;
    rows8 x = {(int8_t *)(scratch + t->block * 8), (float *)scratch, (int32_t *)(scratch + t->block * 4), padded};
    product8 product = {t->w, t->scales, t->b, d, t->tile};
    i64 packed = -1;
    NAME(known) of = {0};
    for (i64 item = begin; item < end; item++) {
        const i64 block = item / t->spans, span = item % t->spans, from = block * t->block, at = span * t->room + from;
        const i64 rows = t->n - from < t->block ? t->n - from : t->block;
        const float *states = (const float *)t->x + from * d;
        if (packed != block) {
            packed = block;
            if (!t->wide) NAME(quantize)(states, d, rows, d, &x);
            t->began[item] = 1;
            of.least = (REAL *)t->least + at, of.value = (REAL *)t->value + at * k, of.word = t->word + at * k;
            for (i64 row = 0; row < rows; row++) of.least[row] = (REAL)-INFINITY;
            for (i64 i = 0; i < rows * k; i++) of.value[i] = (REAL)-INFINITY, of.word[i] = 0;
        }
        of.most = (REAL *)t->most + at, of.sum = (REAL *)t->sum + at, of.said = (REAL *)t->said + from;
        for (i64 row = 0; row < rows; row++) of.most[row] = -HUGEST, of.sum[row] = 0;
        const i64 until = (span + 1) * SPAN < t->v ? (span + 1) * SPAN : t->v;
        for (i64 first = span * SPAN; first < until; first += WORDS8) {
            const i64 last = until - first < WORDS8 ? until : first + WORDS8, tiles = (rows + TILE8_ROWS - 1) / TILE8_ROWS;
            for (i64 tile = 0; tile < tiles; tile++) {
                REAL logits[TILE8_ROWS * WORDS8];
                const i64 row = rows * tile / tiles, some = rows * (tile + 1) / tiles - row;
                const rows8 part = {x.q + row * padded, x.scale + row, x.sum + row, padded};
                if (t->wide) NAME(outputs8_wide)(&product, states + row * d, d, some, first, last, logits, WORDS8, DENSE_SET);
                else NAME(outputs8)(&product, &part, some, first, last, logits, WORDS8, DENSE_SET);
                for (i64 r = 0; r < some; r++) NAME(take8)(t, &of, row + r, first, last - first, logits + r * WORDS8);
            }
        }
    }
    free(scratch);
    return 0;
}
