/* One token per row through layers of attention with a cache. See simd_instance.h for the macros.
 *
 * Activations of a block of rows are in panels of p rows: feature i of row r is at (r / p) p d + i p + r % p. With few rows p is 1,
 * with more rows 2 LANES; dense.h has the products of both. Where some weights have 8 bits p is 1, as int8_products.h takes rows. */

/* y = W x + b in one of the modes of dense.h; w: weight and bias. `is_new`: x has other values than at the call before. */
TARGET static void NAME(project)(const step_shape *t, const void *const *w, i64 out, i64 in, const REAL *x, REAL *y, i64 rows, i64 p, const int mode,
                                 const int is_new) {
#if !DOUBLE
    rows8 *quantized = t->quantized;
    const float *scale = t->scales ? t->scales[w - t->weights] : NULL;
    if (is_new && quantized) quantized->of = NULL;
    if (scale) {
        const product8 product = {w[0], scale, w[1], in, t->tile};
        if (t->wide) {
            NAME(outputs8_wide)(&product, x, in, rows, 0, out, y, out, mode);
            return;
        }
        if (quantized->of != x) {
            quantized->row = (in + 3) / 4 * 4, quantized->of = x;
            NAME(quantize)(x, in, rows, in, quantized);
        }
        NAME(outputs8)(&product, quantized, rows, 0, out, y, out, mode);
        return;
    }
#endif
    (void)t, (void)is_new;
    for (i64 r = 0; p == 1 && r < rows; r += FEW)
        NAME(dense)(w[0], w[1], out, in, x + r * in, y + r * out, rows - r < FEW ? rows - r : FEW, 1, mode);
    if (p > 1) NAME(dense)(w[0], w[1], out, in, x, y, rows, p, mode);
}

/* (x - mean) / sqrt(variance + eps) ∘ w + b; w NULL: x itself */
TARGET static void NAME(normed)(const void *weight, const void *bias, double eps, i64 d, const REAL *x, REAL *y, i64 rows, i64 p) {
    const REAL *w = weight, *b = bias;
    if (!w) {
        memcpy(y, x, (size_t)((rows + p - 1) / p * p * d) * sizeof(REAL));
    } else if (p == 1) {
        const i64 whole = d / LANES * LANES;
        for (i64 r = 0; r < rows; r++, x += d, y += d) {
            VEC sums = ALL(0), squares = ALL(0);
            for (i64 i = 0; i < whole; i += LANES) sums += LOAD(x + i);
            REAL sum = SUM(sums);
            for (i64 i = whole; i < d; i++) sum += x[i];
            const REAL mean = sum / (REAL)d;
            for (i64 i = 0; i < whole; i += LANES) {
                const VEC off = LOAD(x + i) - mean;
                squares += off * off;
            }
            sum = SUM(squares);
            for (i64 i = whole; i < d; i++) sum += (x[i] - mean) * (x[i] - mean);
            const REAL scale = (REAL)(1 / sqrt((double)sum / (double)d + eps));
            for (i64 i = 0; i < whole; i += LANES) STORE(y + i, (LOAD(x + i) - mean) * scale * LOAD(w + i) + (b ? LOAD(b + i) : ALL(0)));
            for (i64 i = whole; i < d; i++) y[i] = (x[i] - mean) * scale * w[i] + (b ? b[i] : 0);
        }
    } else {
        for (i64 r = 0; r < rows; r += LANES) {
            const REAL *from = x + r / p * p * d + r % p;
            REAL *to = y + r / p * p * d + r % p;
            VEC sum = ALL(0), squares = ALL(0);
            for (i64 i = 0; i < d; i++) sum += LOAD(from + i * p);
            const VEC mean = sum / (REAL)d;
            for (i64 i = 0; i < d; i++) {
                const VEC off = LOAD(from + i * p) - mean;
                squares += off * off;
            }
            const VEC scale = (REAL)1 / SQRT(squares / (REAL)d + (REAL)eps);
            for (i64 i = 0; i < d; i++) STORE(to + i * p, (LOAD(from + i * p) - mean) * scale * w[i] + (b ? b[i] : 0));
        }
    }
}

/* the norm of queries (of: 0) or keys (1) of all heads, in place; no panels */
TARGET static void NAME(norm_heads)(const step_parts *parts, int of, REAL *x, i64 rows, i64 heads, i64 width) {
    const REAL *gain = parts->gain[of], *offset = parts->offset[of];
    const i64 n = parts->norm == NORM_WHOLE_RMS ? heads * width : width;
    for (const REAL *end = x + rows * heads * width; x < end; x += n) {
        REAL mean = 0, squares = 0;
        for (i64 i = 0; parts->norm == NORM_LAYER && i < n; i++) mean += x[i] / (REAL)n;
        for (i64 i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
        const double length = sqrt((double)squares), root = sqrt((double)squares / (double)n + parts->eps);
        const REAL factor = (REAL)(parts->norm == NORM_L2 ? 1 / (length > parts->eps ? length : parts->eps) : 1 / root);
        for (i64 i = 0; i < n; i++) {
            const REAL weight = !gain ? 1 : parts->norm == NORM_L2 ? gain[0] * (REAL)sqrt((double)width) : (REAL)parts->base + gain[i];
            x[i] = (x[i] - mean) * factor * weight + (offset ? offset[i] : 0);
        }
    }
}

/* queries or keys of all heads rotated in place; no panels */
TARGET static void NAME(rotate_heads)(const step_parts *parts, REAL *x, i64 heads, i64 width) {
    const REAL *cosine = parts->cosine, *sine = parts->sine;
    const i64 step = parts->neighbours ? 2 : 1, gap = parts->neighbours ? 1 : parts->pairs;
    for (i64 h = 0; h < heads; h++, x += width)
        for (i64 k = 0; k < parts->pairs; k++) {
            const REAL a = x[k * step], b = x[k * step + gap];
            x[k * step] = a * cosine[k] - b * sine[k], x[k * step + gap] = b * cosine[k] + a * sine[k];
        }
}

/* e^x of any x; NaN stays NaN */
TARGET static INLINE VEC NAME(clamped_power)(VEC x) { return NAME(exponential)(MINIMUM(ALL(-LOWEST), MAXIMUM(ALL(LOWEST), x))); }

/* cooling · cap tanh(s / cap) */
TARGET static INLINE VEC NAME(capped)(const step_parts *parts, VEC s) {
    const REAL cap = (REAL)parts->cap, cooling = (REAL)parts->cooling;
    if (cap > 0) s = cap - 2 * cap / (NAME(clamped_power)(s * (2 / cap)) + (REAL)1);
    return s * cooling;
}

/* the same in place, and their maximum */
TARGET static REAL NAME(cap_scores)(const step_parts *parts, REAL *s, i64 count) {
    const i64 whole = count / LANES * LANES;
    REAL most = (REAL)-INFINITY, lanes[LANES];
    VEC highest = ALL(LOWEST) + most;
    for (i64 j = 0; j < whole; j += LANES) {
        const VEC x = NAME(capped)(parts, LOAD(s + j));
        highest = MAXIMUM(x, highest);
        STORE(s + j, x);
    }
    NAME(store_some)(s + whole, count - whole, NAME(capped)(parts, NAME(load_some)(s + whole, count - whole, 0)));
    STORE(lanes, highest);
    for (i64 l = 0; l < LANES; l++) most = lanes[l] > most ? lanes[l] : most;
    for (i64 j = whole; j < count; j++) most = s[j] > most ? s[j] : most;
    return most;
}

/* a ∘ σ(W x + b), with one number per head or per channel; `opening` has room for these numbers; no panels */
TARGET static void NAME(gate_heads)(const step_shape *t, i64 in, const REAL *x, REAL *opening, REAL *a, i64 rows) {
    const i64 gates = t->parts->gates, all = rows * gates, channels = t->heads * t->width / gates;
    NAME(project)(t, t->parts->gate, gates, in, x, opening, rows, 1, DENSE_SET, 1);
    for (i64 i = 0; i < all; i += LANES) {
        const i64 some = all - i < LANES ? all - i : LANES;
        NAME(store_some)(opening + i, some, (REAL)1 / ((REAL)1 + NAME(clamped_power)(-NAME(load_some)(opening + i, some, 0))));
    }
    for (i64 i = 0; i < all; i++)
        for (i64 c = 0; c < channels; c++) a[i * channels + c] *= opening[i];
}

/* s: the weights of one query over `count` cached keys of one head, before the division by their sum; returns 1 / sum, or 0 without a key. A null slot
 * takes the weight of its score `sink`, if there is one. */
TARGET static INLINE REAL NAME(weigh_keys)(const REAL *q, const REAL *keys, i64 key_row, const i64 *index, i64 count, i64 width, const step_parts *parts,
                                           const REAL *sink, REAL *s) {
    const i64 whole = width / LANES * LANES;
    REAL most = (REAL)-INFINITY;
    i64 j = 0;
    for (; whole == width && j + 4 <= count; j += 4) {
        const REAL *k0 = keys + (index ? index[j] : j) * key_row, *k1 = keys + (index ? index[j + 1] : j + 1) * key_row;
        const REAL *k2 = keys + (index ? index[j + 2] : j + 2) * key_row, *k3 = keys + (index ? index[j + 3] : j + 3) * key_row;
        VEC s0 = ALL(0), s1 = ALL(0), s2 = ALL(0), s3 = ALL(0);
        for (i64 i = 0; i < whole; i += LANES) {
            const VEC value = LOAD(q + i);
            s0 += value * LOAD(k0 + i), s1 += value * LOAD(k1 + i), s2 += value * LOAD(k2 + i), s3 += value * LOAD(k3 + i);
        }
        NAME(sum_four)(s0, s1, s2, s3, s + j);
        for (int n = 0; n < 4; n++) most = s[j + n] > most ? s[j + n] : most;
    }
    for (; j < count; j++) {
        const REAL *key = keys + (index ? index[j] : j) * key_row;
        VEC sums = ALL(0);
        REAL sum = 0;
        for (i64 i = 0; i < whole; i += LANES) sums += LOAD(q + i) * LOAD(key + i);
        for (i64 i = whole; i < width; i++) sum += q[i] * key[i];
        s[j] = whole ? sum + SUM(sums) : sum;
        most = s[j] > most ? s[j] : most;
    }
    if (parts && (parts->cap > 0 || parts->cooling != 1)) most = NAME(cap_scores)(parts, s, count);
    const REAL slot = sink ? *sink * (REAL)parts->cooling : 0;
    if (sink && slot > most) most = slot;
    VEC totals = ALL(0);
    REAL total = 0;
    j = 0;
    /* e^x need not be exact below the last bit of any sum; NaN stays NaN */
    for (; j + LANES <= count; j += LANES) {
        const VEC share = NAME(exponential)(MAXIMUM(ALL(LOWEST), LOAD(s + j) - most));
        totals += share;
        STORE(s + j, share);
    }
    total = SUM(totals);
    if (j < count) {
        const VEC share = NAME(exponential)(MAXIMUM(ALL(LOWEST), NAME(load_some)(s + j, count - j, most) - most));
        NAME(store_some)(s + j, count - j, share);
        for (; j < count; j++) total += s[j];
    }
    if (sink) total += (REAL)exp((double)(slot - most));
    return count ? 1 / total : 0;
}

/* the sum of `count` cached values of one head, weighted by scale s */
TARGET static INLINE void NAME(read_values)(const REAL *s, REAL scale, const REAL *values, i64 value_row, const i64 *index, i64 count, i64 width, REAL *out) {
    i64 first = 0, j;
    for (; first + 4 * LANES <= width; first += 4 * LANES) {
        VEC a0 = ALL(0), a1 = ALL(0), a2 = ALL(0), a3 = ALL(0);
        for (j = 0; j < count; j++) {
            const REAL *value = values + (index ? index[j] : j) * value_row + first;
            a0 += s[j] * LOAD(value), a1 += s[j] * LOAD(value + LANES);
            a2 += s[j] * LOAD(value + 2 * LANES), a3 += s[j] * LOAD(value + 3 * LANES);
        }
        STORE(out + first, a0 * scale), STORE(out + first + LANES, a1 * scale);
        STORE(out + first + 2 * LANES, a2 * scale), STORE(out + first + 3 * LANES, a3 * scale);
    }
    for (; first + LANES <= width; first += LANES) {
        VEC sum = ALL(0);
        for (j = 0; j < count; j++) sum += s[j] * LOAD(values + (index ? index[j] : j) * value_row + first);
        STORE(out + first, sum * scale);
    }
    for (; first < width; first++) {
        REAL sum = 0;
        for (j = 0; j < count; j++) sum += s[j] * values[(index ? index[j] : j) * value_row + first];
        out[first] = sum * scale;
    }
}

/* softmax(scale q kᵀ) v of head h of one row, q at `place`; s has room for the weights of the keys */
TARGET static void NAME(attend_head)(const step_shape *t, const keys_of_row *row, i64 h, const REAL *q, i64 p, REAL *s, REAL *one, REAL *out) {
    const REAL *keys = row->keys, *values = row->values, *sink = t->parts ? t->parts->sink : NULL;
    const i64 head = h / (t->heads / t->kv_heads);
    for (i64 i = 0; i < t->width; i++) one[i] = q[i * p] * (REAL)t->scale;
    const REAL scale = NAME(weigh_keys)(one, keys + head * row->key[1], row->key[2], row->index, row->count, t->width, t->parts,
                                        sink ? sink + h * t->parts->sink_step : NULL, s);
    if (out) NAME(read_values)(s, scale, values + head * row->value[1], row->value[2], row->index, row->count, t->width, out);
    else for (i64 j = 0; j < row->count; j++) s[j] *= scale;
}

/* λ of a difference: exp(a · b) − exp(c · d) + λ₀ */
static REAL NAME(difference_factor)(const step_parts *parts, i64 width) {
    REAL product[2] = {0, 0};
    for (int n = 0; n < 2; n++)
        for (i64 i = 0; i < width; i++) product[n] += ((const REAL *)parts->difference[2 * n])[i] * ((const REAL *)parts->difference[2 * n + 1])[i];
    return (REAL)(exp((double)product[0]) - exp((double)product[1]) + parts->start);
}

/* The first map of heads h and h + heads / 2 minus λ times the second, of the values of both, RMS-normed and times 1 − λ₀; no panels. Weights are
 * subtracted before values are read, which are read once. */
TARGET static void NAME(attend_pair)(const step_shape *t, const keys_of_row *row, i64 h, REAL factor, const REAL *q, REAL *s, REAL *one, REAL *out) {
    const i64 other = h + t->heads / 2, group = t->heads / t->kv_heads, width = t->width;
    const REAL *values = row->values;
    REAL *second = s + t->longest, squares = 0;
    NAME(attend_head)(t, row, h, q + h * width, 1, s, one, NULL);
    NAME(attend_head)(t, row, other, q + other * width, 1, second, one, NULL);
    for (i64 j = 0; j < row->count; j++) s[j] -= factor * second[j];
    for (int n = 0; n < 2; n++)
        NAME(read_values)(s, 1, values + (n ? other : h) / group * row->value[1], row->value[2], row->index, row->count, width, out + n * width);
    for (i64 i = 0; i < 2 * width; i++) squares += out[i] * out[i];
    const REAL norm = (REAL)((1 - t->parts->start) / sqrt((double)squares / (double)(2 * width) + t->parts->difference_eps));
    for (i64 i = 0; i < 2 * width; i++) out[i] *= norm;
}

/* Attention of rows from..from+rows to their cache: q (rows, heads width) to a of the same shape, both in panels. */
TARGET static void NAME(attend_rows)(const step_shape *t, const i64 *cache, const REAL *q, REAL *a, REAL *s, i64 from, i64 rows, i64 p, int own) {
    const i64 d = t->heads * t->width;
    const REAL *keys = (const REAL *)(intptr_t)cache[0], *values = (const REAL *)(intptr_t)cache[1];
    const int paired = t->parts && t->parts->difference[0];
    const REAL factor = paired ? NAME(difference_factor)(t->parts, t->width) : 0;
    REAL *one = s + 2 * t->longest, *result = one + t->width;
    for (i64 r = 0; r < rows; r++) {
        const i64 row = from + r, sentence = row / t->per;
        const i64 past = own && t->counts ? t->counts[row] : t->columns, length = own ? past : t->lengths[sentence], end = own || length < t->source ? length : t->source;
        keys_of_row of = {keys + sentence * cache[2], values + sentence * cache[5], cache + 2, cache + 5, own && t->index ? t->index + row * t->columns : NULL,
                          end < 0 ? 0 : end};
        for (i64 h = 0; paired && h < t->heads / 2; h++) NAME(attend_pair)(t, &of, h, factor, q + r * d, s, one, a + r * d + 2 * h * t->width);
        for (i64 h = 0; !paired && h < t->heads; h++) {
            const i64 place = r / p * p * d + h * t->width * p + r % p;
            NAME(attend_head)(t, &of, h, q + place, p, s, one, result);
            for (i64 i = 0; i < t->width; i++) a[place + i * p] = result[i];
        }
    }
}

/* writes keys or values (rows, kv_heads width), in panels, behind the others in their cache */
TARGET static void NAME(append)(const step_shape *t, REAL *to, const i64 *stride, const REAL *x, i64 from, i64 rows, i64 p) {
    const i64 d = t->kv_heads * t->width;
    for (i64 r = 0; r < rows; r++) {
        const i64 row = from + r;
        for (i64 h = 0; h < t->kv_heads; h++) {
            REAL *place = to + row / t->per * stride[0] + h * stride[1] + (t->at + row % t->per) * stride[2];
            for (i64 i = 0; i < t->width; i++) place[i] = x[r / p * p * d + (h * t->width + i) * p + r % p];
        }
    }
}

/* q, k and v of x; k and v go into the cache; a is the attention to it. w: weight and bias of q, k and v */
TARGET static void NAME(attend_self)(const step_shape *t, const void *const *w, const i64 *cache, i64 in, const REAL *x, REAL *q, REAL *a, REAL *s,
                                     i64 from, i64 rows, i64 p) {
    const i64 d = t->heads * t->width, e = t->kv_heads * t->width;
    const step_parts *norm = t->parts && t->parts->norm ? t->parts : NULL, *turn = t->parts && t->parts->cosine ? t->parts : NULL;
    NAME(project)(t, w + 2, e, in, x, q, rows, p, DENSE_SET, 1);
    if (norm) NAME(norm_heads)(norm, 1, q, rows, t->kv_heads, t->width);
    if (turn) NAME(rotate_heads)(turn, q, rows * t->kv_heads, t->width);
    NAME(append)(t, (REAL *)(intptr_t)cache[0], cache + 2, q, from, rows, p);
    NAME(project)(t, w + 4, e, in, x, q, rows, p, DENSE_SET, 0);
    NAME(append)(t, (REAL *)(intptr_t)cache[1], cache + 5, q, from, rows, p);
    NAME(project)(t, w, d, in, x, q, rows, p, DENSE_SET, 0);
    if (norm) NAME(norm_heads)(norm, 0, q, rows, t->heads, t->width);
    if (turn) NAME(rotate_heads)(turn, q, rows * t->heads, t->width);
    NAME(attend_rows)(t, cache, q, a, s, from, rows, p, t->columns > 0);
}

TARGET static void NAME(to_panels)(const REAL *x, REAL *y, i64 rows, i64 d, i64 p) {
    const i64 all = (rows + p - 1) / p * p;
    for (i64 r = 0; r < all; r++)
        for (i64 i = 0; i < d; i++) y[r / p * p * d + i * p + r % p] = r < rows ? x[r * d + i] : 0;
}

TARGET static void NAME(from_panels)(const REAL *x, REAL *y, i64 rows, i64 d, i64 p) {
    for (i64 r = 0; r < rows; r++)
        for (i64 i = 0; i < d; i++) y[r * d + i] = x[r / p * p * d + i * p + r % p];
}

/* An item is a block of rows. With layers 0 it is one attention: x (rows, in) to out (rows, in). */
TARGET static int NAME(decoder_step)(const void *context, i64 begin, i64 end) {
    const step_shape *whole = context, *t = whole;
    const i64 d = t->d, inner = t->heads * t->width, most = t->block < t->rows ? t->block : t->rows;
    const i64 p = most <= FEW || t->scales || t->parts ? 1 : 2 * LANES, room = (most + p - 1) / p * p;
    const i64 wide = inner > d ? inner : d, hidden = t->feed > wide ? t->feed : wide;
    REAL *x = malloc((size_t)(room * (2 * d + 2 * wide + hidden) + 2 * t->longest + 2 * t->width + 1) * sizeof(REAL));
    if (!x) return 1;
#if !DOUBLE
    /* activations in 8 bits, of this thread alone */
    step_shape own = *whole;
    rows8 quantized = {0};
    if (t->scales) {
        char *bytes = malloc((size_t)(room * (hidden + 4 + 8)));
        if (!bytes) return free(x), 1;
        quantized.scale = (float *)bytes, quantized.sum = (int32_t *)(bytes + 4 * room), quantized.q = (int8_t *)(bytes + 8 * room);
        own.quantized = &quantized, t = &own;
    }
#endif
    REAL *y = x + room * d, *q = y + room * d, *a = q + room * wide, *f = a + room * wide, *s = f + room * hidden;
    for (i64 item = begin; item < end; item++) {
        const i64 from = item * t->block, rows = t->rows - from < t->block ? t->rows - from : t->block;
        const int pre = t->norm_first;
        REAL *given = (REAL *)t->x + from * d;
        NAME(to_panels)(given, x, rows, d, p);
        if (!t->layers) {
            NAME(attend_self)(t, t->weights, t->caches, d, x, q, a, s, from, rows, p);
            if (t->parts && t->parts->gate[0]) NAME(gate_heads)(t, d, x, q, a, rows);
            NAME(project)(t, t->weights + 6, d, inner, a, y, rows, p, DENSE_SET, 1);
            NAME(from_panels)(y, (REAL *)t->out + from * d, rows, d, p);
            continue;
        }
        for (i64 layer = 0; layer < t->layers; layer++) {
            const void *const *w = t->weights + layer * STEP_WEIGHTS;
            const i64 *cache = t->caches + layer * 16;
            NAME(normed)(pre ? w[0] : NULL, w[1], t->eps, d, x, y, rows, p);
            NAME(attend_self)(t, w + 2, cache, d, y, q, a, s, from, rows, p);
            NAME(project)(t, w + 8, d, inner, a, x, rows, p, DENSE_ADD, 1);
            if (!pre) NAME(normed)(w[0], w[1], t->eps, d, x, x, rows, p);
            if (w[12]) { /* an encoder has no second attention */
                NAME(normed)(pre ? w[10] : NULL, w[11], t->eps, d, x, y, rows, p);
                NAME(project)(t, w + 12, inner, d, y, q, rows, p, DENSE_SET, 1);
                NAME(attend_rows)(t, cache + 8, q, a, s, from, rows, p, 0);
                NAME(project)(t, w + 14, d, inner, a, x, rows, p, DENSE_ADD, 1);
                if (!pre) NAME(normed)(w[10], w[11], t->eps, d, x, x, rows, p);
            }
            NAME(normed)(pre ? w[16] : NULL, w[17], t->eps, d, x, y, rows, p);
            NAME(project)(t, w + 18, t->feed, d, y, f, rows, p, t->gelu ? DENSE_SET : DENSE_RELU, 1);
            if (t->gelu) NAME(gelu_values)(f, f, (rows + p - 1) / p * p * t->feed);
            NAME(project)(t, w + 20, d, t->feed, f, x, rows, p, DENSE_ADD, 1);
            if (!pre) NAME(normed)(w[16], w[17], t->eps, d, x, x, rows, p);
        }
        const void *const *last = t->weights + t->layers * STEP_WEIGHTS;
        NAME(normed)(last[0], last[1], t->eps, d, x, y, rows, p);
        NAME(from_panels)(y, (REAL *)t->out + from * d, rows, d, p);
    }
    free(x);
#if !DOUBLE
    free(quantized.scale);
#endif
    return 0;
}
