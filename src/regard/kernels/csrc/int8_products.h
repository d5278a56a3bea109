/* Products W x + b of 8-bit weights with activations of 8 bits, quantised row by row, or of 32. See simd_instance.h for the macros and int8_tiles.h for
 * the layout of the weights: w = scale (byte - 128), one scale per output. */

/* x = scale q + error, |q| <= 127, for `rows` rows; a row with NaN or infinity has the scale NaN */
TARGET static void NAME(quantize)(const float *x, i64 x_row, i64 rows, i64 in, rows8 *to) {
    const i64 whole = in / LANES * LANES;
    for (i64 r = 0; r < rows; r++, x += x_row) {
        int8_t *q = to->q + r * to->row;
        /* magnitudes compare as integers, and NaN and infinity are the largest */
        INT most = 0;
#if BYTES
        IVEC largest = {0};
        for (i64 i = 0; i < whole; i += LANES) {
            const IVEC bits = (IVEC)LOAD(x + i) & 0x7fffffff, above = bits > largest;
            largest = (above & bits) | (~above & largest);
        }
        for (i64 l = 0; l < LANES; l++) most = largest[l] > most ? largest[l] : most;
#endif
        for (i64 i = BYTES ? whole : 0; i < in; i++) {
            INT bits;
            memcpy(&bits, x + i, sizeof bits);
            bits &= 0x7fffffff;
            most = bits > most ? bits : most;
        }
        float top;
        memcpy(&top, &most, sizeof top);
        to->scale[r] = most >= 0x7f800000 ? NAN : top / 127;
        to->sum[r] = 0;
        memset(q + in, 0, (size_t)(to->row - in));
        if (most >= 0x7f800000 || top < 1e-30f) {
            if (most < 0x7f800000) to->scale[r] = 0;
            memset(q, 0, (size_t)in);
            continue;
        }
        const float inverse = 127 / top;
        int32_t sum = 0;
        i64 i = 0;
#if X86 && LEVEL == 2
        __m512i sums = _mm512_setzero_si512();
        for (; i < whole; i += LANES) {
            const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps((__m512)LOAD(x + i), _mm512_set1_ps(inverse)));
            sums = _mm512_add_epi32(sums, rounded);
            _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtepi32_epi8(rounded));
        }
        sum = _mm512_reduce_add_epi32(sums);
#elif X86
        for (; i + 4 <= in; i += 4) {
            const __m128i rounded = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + i), _mm_set1_ps(inverse)));
            int32_t four[4];
            _mm_storeu_si128((__m128i *)four, rounded);
            for (int k = 0; k < 4; k++) q[i + k] = (int8_t)four[k], sum += four[k];
        }
#endif
        for (; i < in; i++) {
            const int32_t one = (int32_t)nearbyintf(x[i] * inverse);
            q[i] = (int8_t)one, sum += one;
        }
        to->sum[r] = sum;
    }
}

/* y = sums scale + b, in one of the modes of dense.h, for the outputs first to first + count of a row */
TARGET static INLINE void NAME(place8)(const product8 *t, const int32_t *sums, float x_scale, i64 first, i64 count, float *y, const int mode) {
    i64 o = 0;
#if BYTES
    for (; o + LANES <= count; o += LANES) {
        VEC value = __builtin_convertvector((IVEC)*(const NAME(iuvec) *)(sums + o), VEC) * (x_scale * LOAD(t->scale + first + o));
        if (t->bias) value += LOAD(t->bias + first + o);
        if (mode == DENSE_ADD) value += LOAD(y + o);
        if (mode == DENSE_RELU) value = MAXIMUM(ALL(0), value);
        STORE(y + o, value);
    }
#endif
    for (; o < count; o++) {
        const float value = (float)sums[o] * (x_scale * t->scale[first + o]) + (t->bias ? t->bias[first + o] : 0);
        y[o] = NAME(placed)(value, y[o], mode);
    }
}

/* outputs first to last, first a multiple of PANEL8, of all rows of x; y is (rows, y_row) and begins at output `first` */
TARGET static void NAME(outputs8)(const product8 *t, const rows8 *x, i64 rows, i64 first, i64 last, float *y, i64 y_row, const int mode) {
    const i64 quads = (t->in + 3) / 4;
    int32_t sums[TILE8_ROWS * TILE8_PANELS * PANEL8];
    const i64 tiles = (rows + TILE8_ROWS - 1) / TILE8_ROWS;
    for (i64 o = first; o < last; o += TILE8_PANELS * PANEL8) {
        const i64 count = last - o < TILE8_PANELS * PANEL8 ? last - o : TILE8_PANELS * PANEL8, panels = (count + PANEL8 - 1) / PANEL8;
        for (i64 tile = 0; tile < tiles; tile++) {
            const i64 from = rows * tile / tiles, some = rows * (tile + 1) / tiles - from;
            t->tile(t->w + o / PANEL8 * quads * 4 * PANEL8, quads, x->q + from * x->row, x->row, x->sum + from, (int)some, (int)panels, sums);
            for (i64 r = 0; r < some; r++)
                NAME(place8)(t, sums + r * panels * PANEL8, x->scale[from + r], o, count, y + (from + r) * y_row + o - first, mode);
        }
    }
}

/* the same with activations of 32 bits: weights are widened once for up to `rows` rows, a constant where this is inlined */
TARGET static INLINE void NAME(panel8_wide)(const product8 *t, const uint8_t *w, const float *x, i64 x_row, const int rows, i64 o, i64 count, float *y,
                                            i64 y_row, const int mode) {
    enum { PARTS = PANEL8 / LANES };
    VEC sums[4 * PARTS];
    const i64 whole = t->in / 4;
    for (int i = 0; i < rows * PARTS; i++) sums[i] = ALL(0);
    for (i64 q = 0; q < (t->in + 3) / 4; q++)
        for (int j = 0; j < (q < whole ? 4 : t->in - 4 * whole); j++)
            for (int part = 0; part < PARTS; part++) {
#if BYTES
                NAME(bits) quads;
                memcpy(&quads, w + q * 64 + part * BYTES, sizeof quads);
                /* a byte in the lowest bits of 2^23 is 2^23 more than its value */
                const VEC weight = (VEC)((quads >> 8 * j & 0xff) | 0x4b000000) - (8388608.0f + 128.0f);
#else
                const VEC weight = (float)w[q * 64 + part * 4 + j] - 128.0f;
#endif
                for (int r = 0; r < rows; r++) sums[r * PARTS + part] += x[r * x_row + 4 * q + j] * weight;
            }
    for (int r = 0; r < rows; r++) {
        float lanes[PANEL8];
        for (int part = 0; part < PARTS; part++) STORE(lanes + part * LANES, sums[r * PARTS + part]);
        for (i64 l = 0; l < count; l++) {
            const float value = lanes[l] * t->scale[o + l] + (t->bias ? t->bias[o + l] : 0);
            y[r * y_row + l] = NAME(placed)(value, y[r * y_row + l], mode);
        }
    }
}

TARGET static void NAME(outputs8_wide)(const product8 *t, const float *x, i64 x_row, i64 rows, i64 first, i64 last, float *y, i64 y_row, const int mode) {
    const i64 quads = (t->in + 3) / 4;
    for (i64 o = first; o < last; o += PANEL8) {
        const i64 count = last - o < PANEL8 ? last - o : PANEL8;
        const uint8_t *w = t->w + o / PANEL8 * quads * 4 * PANEL8;
        float *to = y + o - first;
        i64 r = 0;
        for (; r + 4 <= rows; r += 4) NAME(panel8_wide)(t, w, x + r * x_row, x_row, 4, o, count, to + r * y_row, y_row, mode);
        for (; r < rows; r++) NAME(panel8_wide)(t, w, x + r * x_row, x_row, 1, o, count, to + r * y_row, y_row, mode);
    }
}

/* erf by the rational approximation 7.1.26 of Abramowitz & Stegun, |error| < 1.5e-7; x Φ(x) */
TARGET static void NAME(exact_gelu)(float *y, i64 count) {
    for (i64 i = 0; i < count; i += LANES) {
        const i64 some = count - i;
        const VEC x = some >= LANES ? LOAD(y + i) : NAME(load_some)(y + i, some, 0);
        const VEC z = MAXIMUM(x, -x) * 0.70710678118654752f, t = 1.0f / (1.0f + 0.3275911f * z);
        const VEC sum = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
        const VEC tail = 0.5f * sum * NAME(exponential)(MAXIMUM(ALL(LOWEST), -z * z)); /* Φ(-|x|) */
        const VEC result = x * SELECT(x > ALL(0), 1.0f - tail, tail);
        if (some >= LANES) STORE(y + i, result);
        else NAME(store_some)(y + i, some, result);
    }
}

/* An item is a block of rows and a block of outputs. */
TARGET static int NAME(linear8)(const void *context, i64 begin, i64 end) {
    const linear8_shape *t = context;
    for (i64 item = begin; item < end; item++) {
        const i64 from = item / t->parts * t->block, rows = t->rows - from < t->block ? t->rows - from : t->block;
        const i64 first = item % t->parts * t->part, last = t->out - first < t->part ? t->out : first + t->part;
        float *y = t->y + from * t->out + first;
        const int mode = t->activation == ACTIVATION_RELU ? DENSE_RELU : t->other ? DENSE_ADD : DENSE_SET;
        if (t->other)
            for (i64 r = 0; r < rows; r++)
                memcpy(y + r * t->out, t->other + (from + r) * t->out + first, (size_t)(last - first) * sizeof(float));
        if (t->wide) {
            NAME(outputs8_wide)(&t->product, t->x + from * t->product.in, t->product.in, rows, first, last, y, t->out, mode);
        } else {
            const rows8 x = {t->quantized.q + from * t->quantized.row, t->quantized.scale + from, t->quantized.sum + from, t->quantized.row};
            NAME(outputs8)(&t->product, &x, rows, first, last, y, t->out, mode);
        }
        for (i64 r = 0; r < rows && t->activation > ACTIVATION_RELU; r++) {
            if (t->activation == ACTIVATION_GELU) NAME(exact_gelu)(y + r * t->out, last - first);
            else NAME(gelu_values)(y + r * t->out, y + r * t->out, last - first);
        }
    }
    return 0;
}

/* An item is a row. */
TARGET static int NAME(quantize_rows)(const void *context, i64 begin, i64 end) {
    const linear8_shape *t = context;
    rows8 to = {t->quantized.q + begin * t->quantized.row, t->quantized.scale + begin, t->quantized.sum + begin, t->quantized.row};
    NAME(quantize)(t->x + begin * t->product.in, t->product.in, end - begin, t->product.in, &to);
    return 0;
}
