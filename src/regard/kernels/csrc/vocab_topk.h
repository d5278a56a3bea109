/* The k most probable words of softmax(W x + b); the logits are never written. See simd_instance.h for the macros.
 *
 * States are packed in panels of 2 LANES, one lane per state; six words are multiplied with a panel in registers. So a logit is
 * one chain of sums over d, the same for every state whatever its neighbours are, and the selection handles LANES states at once. Few states
 * are multiplied as they are, because their lanes would be empty. */


#define HUGEST ((REAL)(DOUBLE ? DBL_MAX : FLT_MAX))
#if X86 && LEVEL == 2 && DOUBLE
#define ABOVE(a, b) ((unsigned)_mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_GT_OQ))
#elif X86 && LEVEL == 2
#define ABOVE(a, b) ((unsigned)_mm512_cmp_ps_mask((__m512)(a), (__m512)(b), _CMP_GT_OQ))
#elif X86 && LEVEL == 1 && DOUBLE
#define ABOVE(a, b) ((unsigned)_mm256_movemask_pd((__m256d)((a) > (b))))
#elif X86 && LEVEL == 1
#define ABOVE(a, b) ((unsigned)_mm256_movemask_ps((__m256)((a) > (b))))
#elif X86 && DOUBLE
#define ABOVE(a, b) ((unsigned)_mm_movemask_pd((__m128d)((a) > (b))))
#elif X86
#define ABOVE(a, b) ((unsigned)_mm_movemask_ps((__m128)((a) > (b))))
#else
#define ABOVE(a, b) NAME(above)(a, b)
TARGET static INLINE unsigned NAME(above)(VEC a, VEC b) {
    REAL x[LANES], y[LANES];
    STORE(x, a), STORE(y, b);
    unsigned bits = 0;
    for (i64 l = 0; l < LANES; l++) bits |= (unsigned)(x[l] > y[l]) << l;
    return bits;
}
#endif

/* Running result of the states of a block over the words so far: the largest logit, the sum of e^(logit - largest), and the k
 * allowed words of largest logit, the largest first and of equals the first. */
typedef struct {
    REAL *most, *sum, *least, *value, *said; /* (n), (n), (n): the smallest of the k, (n, k), (n): the logit of the extra word */
    i64 *word;                               /* (n, k) */
} NAME(known);

/* inserts a word into the k of a state, after those that are not smaller */
TARGET static INLINE void NAME(insert)(const vocabulary *t, NAME(known) *of, i64 row, i64 word, REAL x) {
    const i64 last = t->k - 1;
    REAL *value = of->value + row * t->k;
    i64 *words = of->word + row * t->k, at = last;
    if (!(x > value[last])) return;
    for (i64 f = 0; f < t->nevers; f++)
        if (t->never[f] == word) return;
    for (; at > 0 && x > value[at - 1]; at--) value[at] = value[at - 1], words[at] = words[at - 1];
    value[at] = x, words[at] = word;
    of->least[row] = value[last];
}

/* e^x, x <= 0; a value below the last bit of any sum need not be exact */
TARGET static INLINE VEC NAME(share)(VEC x) { return NAME(exponential)(MAXIMUM(ALL(LOWEST), x)); }

/* adds WORDS logits of LANES states to the running result; the words are `stride` vectors apart */
TARGET static INLINE void NAME(take)(const vocabulary *t, NAME(known) *of, i64 first, i64 row, const VEC *c, const int stride) {
    VEC top = c[0], most = LOAD(of->most + row), sum = LOAD(of->sum + row);
    const VEC least = LOAD(of->least + row);
    for (int i = 1; i < WORDS; i++) top = MAXIMUM(c[i * stride], top);
    /* NaN compares greater than nothing; the sum shows it */
    if (ABOVE(top, MINIMUM(least, most))) {
        for (int i = 0; i < WORDS; i += 3) {
            uint64_t bits = 0;
            for (int j = 0; j < 3; j++) bits |= (uint64_t)ABOVE(c[(i + j) * stride], least) << j * LANES;
            for (; bits; bits &= bits - 1) {
                const int at = LOWEST_BIT(bits);
                REAL logits[LANES];
                STORE(logits, c[(i + at / LANES) * stride]);
                NAME(insert)(t, of, row + at % LANES, first + i + at / LANES, logits[at % LANES]);
            }
        }
        const VEC now = MAXIMUM(top, most);
        sum *= NAME(share)(most - now);
        most = now;
        STORE(of->most + row, most);
    }
    VEC more = ALL(0);
    for (int i = 0; i < WORDS; i++) more += NAME(share)(c[i * stride] - most);
    STORE(of->sum + row, sum + more);
}

/* the same products, at most 2 WORDS, for all states of a call with few: lane r is state r */
TARGET static INLINE void NAME(multiply_few)(const REAL *w, const REAL *x, i64 d, i64 words, i64 n, VEC *c) {
    REAL products[FEW * 2 * WORDS], lanes[2 * WORDS][LANES];
    NAME(dense)(w, NULL, words, d, x, products, n, 1, DENSE_SET);
    for (i64 i = 0; i < 2 * WORDS; i++) {
        for (i64 r = 0; r < LANES; r++) lanes[i][r] = r < n && i < words ? products[r * words + i] : 0;
        c[i] = LOAD(lanes[i]);
    }
}

/* Words first to last of a panel. `fetch`: prefetch the words, which are not in the cache and which more than one panel reads. */
TARGET static INLINE void NAME(panel)(const vocabulary *t, NAME(known) *of, i64 first, i64 last, const REAL *x, i64 row,
                                      const int fetch, const int words, const int vectors) {
    const REAL *weight = t->w, *bias = t->b;
    const int few = vectors == 1 && t->n <= FEW && t->n <= LANES;
    for (i64 v = first; v < last; v += words) {
        const REAL *w[2 * WORDS];
        VEC c[2 * WORDS];
        for (int i = 0; i < words; i++) w[i] = weight + (v + i < last ? v + i : last - 1) * t->d;
        if (fetch && v + 3 * words <= t->v) {
            const REAL *ahead = weight + (v + 2 * words) * t->d;
            for (i64 j = 0; j < words * t->d; j += 64 / (i64)sizeof(REAL)) PREFETCH(ahead + j);
        }
        if (few) NAME(multiply_few)(w[0], t->x, t->d, last - v < words ? last - v : words, t->n, c);
        else NAME(multiply)(w, x, t->d, words, vectors, c);
        for (int i = 0; i < words; i++)
            for (int j = 0; j < vectors; j++) {
                VEC *one = c + i * vectors + j;
                if (v + i >= last) *one = ALL(-INFINITY);
                else if (bias) *one += bias[v + i];
            }
        if (t->also >= v && t->also < v + words && t->also < last)
            for (int j = 0; j < vectors; j++) STORE(of->said + row + j * LANES, c[(t->also - v) * vectors + j]);
        for (int j = 0; j < vectors; j++)
            for (int i = 0; i < words; i += WORDS) NAME(take)(t, of, v + i, row + j * LANES, c + i * vectors + j, vectors);
    }
}

/* An item is a span of words for a block of states. Every span has its own sums, so they do not depend on which thread
 * did the others; the k words are kept over all spans that one thread does in succession, and stored with the first of them. */
TARGET static int NAME(likeliest)(const void *context, i64 begin, i64 end) {
    const vocabulary *t = context;
    const i64 d = t->d, k = t->k;
    REAL *x = malloc((size_t)(t->block * d + 1) * sizeof(REAL));
    if (!x) return 1;
    i64 packed = -1;
    NAME(known) of = {0};
    for (i64 item = begin; item < end; item++) {
        const i64 block = item / t->spans, span = item % t->spans, from = block * t->block, at = span * t->room + from;
        const i64 rows = t->n - from < t->block ? t->n - from : t->block;
        const i64 slots = (rows + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
        if (packed != block) {
            packed = block;
            const REAL *states = (const REAL *)t->x + from * d;
            for (i64 row = 0; row < slots; row++) {
                REAL *to = x + row / (2 * LANES) * (2 * LANES) * d + row % (2 * LANES);
                for (i64 j = 0; j < d; j++) to[j * 2 * LANES] = row < rows ? states[row * d + j] : 0;
            }
            t->began[item] = 1;
            of.least = (REAL *)t->least + at, of.value = (REAL *)t->value + at * k, of.word = t->word + at * k;
            for (i64 row = 0; row < slots; row++) of.least[row] = row < rows ? (REAL)-INFINITY : (REAL)INFINITY;
            for (i64 i = 0; i < rows * k; i++) of.value[i] = (REAL)-INFINITY, of.word[i] = 0;
        }
        of.most = (REAL *)t->most + at, of.sum = (REAL *)t->sum + at, of.said = (REAL *)t->said + from;
        /* finite, because infinities have no difference: lower than every finite logit, and above all logits in lanes without a state */
        for (i64 row = 0; row < slots; row++) of.most[row] = row < rows ? -HUGEST : HUGEST, of.sum[row] = 0;
        const i64 until = (span + 1) * SPAN < t->v ? (span + 1) * SPAN : t->v;
        for (i64 first = span * SPAN; first < until; first += CHUNK) {
            const i64 last = until - first < CHUNK ? until : first + CHUNK;
            for (i64 row = 0; row < rows; row += 2 * LANES) {
                if (rows - row > LANES) NAME(panel)(t, &of, first, last, x + row * d, row, row == 0 && rows > 2 * LANES, WORDS, 2);
                else NAME(panel)(t, &of, first, last, x + row * d, row, 0, 2 * WORDS, 1);
            }
        }
    }
    free(x);
    return 0;
}

/* Merges the spans of a state: log p of its k words and of the extra word. All are NaN if a logit was NaN or plus infinity,
 * or if all were minus infinity. */
TARGET static int NAME(together)(const void *context, i64 begin, i64 end) {
    const vocabulary *t = context;
    const i64 k = t->k;
    for (i64 row = begin; row < end; row++) {
        const REAL *most = (const REAL *)t->most + row, *sum = (const REAL *)t->sum + row;
        REAL *value = (REAL *)t->out + row * k;
        i64 *word = t->ids + row * k;
        double top = -HUGEST, total = 0;
        for (i64 s = 0; s < t->spans; s++) top = most[s * t->room] > top ? most[s * t->room] : top;
        for (i64 s = 0; s < t->spans; s++) total += sum[s * t->room] * exp(most[s * t->room] - top);
        for (i64 i = 0; i < k; i++) value[i] = (REAL)-INFINITY, word[i] = 0;
        for (i64 s = 0; s < t->spans; s++) {
            if (!t->began[row / t->block * t->spans + s]) continue;
            const REAL *others = (const REAL *)t->value + (s * t->room + row) * k;
            const i64 *ids = t->word + (s * t->room + row) * k;
            for (i64 i = 0; i < k && others[i] > value[k - 1]; i++) {
                i64 at = k - 1;
                for (; at > 0 && others[i] > value[at - 1]; at--) value[at] = value[at - 1], word[at] = word[at - 1];
                value[at] = others[i], word[at] = ids[i];
            }
        }
        /* the largest finite logit adds one to the sum; a NaN sum is not less than one */
        const double whole = total < 0.5 ? NAN : log(total);
        for (i64 i = 0; i < k; i++) value[i] = (REAL)((double)value[i] - top - whole);
        ((REAL *)t->told)[row] = (REAL)((double)((const REAL *)t->said)[row] - top - whole);
    }
    return 0;
}
