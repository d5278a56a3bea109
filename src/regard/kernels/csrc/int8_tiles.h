/* Integer sums Σ w x of 8-bit weights and 8-bit activations: one function per instruction set, all with equal results.
 *
 * Weights are in panels of 16 outputs: byte 64 q + 4 o + j of a panel is feature 4 q + j of output o, plus 128. Activations are rows of signed bytes from
 * -127 to 127, padded with zeros to whole quads of features. A tile is up to TILE8_ROWS rows and TILE8_PANELS panels; its sums are (rows, 16 panels). */
enum { PANEL8 = 16, TILE8_ROWS = 6, TILE8_PANELS = 4 };

/* x_sum (rows): the sum of every row of x */
typedef void (*tile8)(const uint8_t *w, i64 quads, const int8_t *x, i64 x_row, const int32_t *x_sum, int rows, int panels, int32_t *sums);

static void tile8_plain(const uint8_t *w, i64 quads, const int8_t *x, i64 x_row, const int32_t *x_sum, int rows, int panels, int32_t *sums) {
    (void)x_sum;
    for (int p = 0; p < panels; p++, w += quads * 4 * PANEL8)
        for (int r = 0; r < rows; r++) {
            int32_t *sum = sums + (r * panels + p) * PANEL8;
            for (int o = 0; o < PANEL8; o++) sum[o] = 0;
            for (i64 q = 0; q < quads; q++) {
                const uint8_t *weight = w + q * 4 * PANEL8;
                const int8_t *value = x + r * x_row + 4 * q;
                for (int o = 0; o < PANEL8; o++)
                    for (int j = 0; j < 4; j++) sum[o] += ((int32_t)weight[4 * o + j] - 128) * value[j];
            }
        }
}

#if X86
static INLINE int32_t quad8(const int8_t *x) {
    int32_t quad;
    memcpy(&quad, x, 4);
    return quad;
}

/* |w| sign(w) x: both factors are at most 127, so that two products fit 16 bits and nothing saturates */
#define TARGET8 __attribute__((target("avx2,fma")))
TARGET8 static INLINE void rows8_avx2(const uint8_t *w, i64 quads, const int8_t *x, i64 x_row, const int rows, i64 sums_row, int32_t *sums) {
    const __m256i flip = _mm256_set1_epi8((char)-128), ones = _mm256_set1_epi16(1);
    __m256i sum[2 * 3];
    for (int i = 0; i < 2 * rows; i++) sum[i] = _mm256_setzero_si256();
    for (i64 q = 0; q < quads; q++) {
        const __m256i low = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(w + q * 64)), flip);
        const __m256i high = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(w + q * 64 + 32)), flip);
        const __m256i most = _mm256_abs_epi8(low), most_high = _mm256_abs_epi8(high);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const __m256i value = _mm256_set1_epi32(quad8(x + r * x_row + 4 * q));
            const __m256i pairs = _mm256_maddubs_epi16(most, _mm256_sign_epi8(value, low));
            const __m256i pairs_high = _mm256_maddubs_epi16(most_high, _mm256_sign_epi8(value, high));
            sum[2 * r] = _mm256_add_epi32(sum[2 * r], _mm256_madd_epi16(pairs, ones));
            sum[2 * r + 1] = _mm256_add_epi32(sum[2 * r + 1], _mm256_madd_epi16(pairs_high, ones));
        }
    }
    for (int r = 0; r < rows; r++) {
        _mm256_storeu_si256((__m256i *)(sums + r * sums_row), sum[2 * r]);
        _mm256_storeu_si256((__m256i *)(sums + r * sums_row + 8), sum[2 * r + 1]);
    }
}

TARGET8 static void tile8_avx2(const uint8_t *w, i64 quads, const int8_t *x, i64 x_row, const int32_t *x_sum, int rows, int panels, int32_t *sums) {
    const i64 wide = panels * PANEL8;
    (void)x_sum;
    for (int p = 0; p < panels; p++, w += quads * 4 * PANEL8, sums += PANEL8) {
        int r = 0;
        for (; r + 3 <= rows; r += 3) rows8_avx2(w, quads, x + r * x_row, x_row, 3, wide, sums + r * wide);
        if (rows - r == 2) rows8_avx2(w, quads, x + r * x_row, x_row, 2, wide, sums + r * wide);
        if (rows - r == 1) rows8_avx2(w, quads, x + r * x_row, x_row, 1, wide, sums + r * wide);
    }
}
#undef TARGET8

/* The instruction multiplies unsigned and signed bytes: Σ (w + 128) x, from which 128 Σ x is subtracted. */
#define TARGET8 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")))
/* The intrinsic would do, but GCC copies its sums between registers, and not all of them fit any more. */
#define ADD_PRODUCTS8(sum, w, x) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))

TARGET8 static INLINE void rows8_vnni(const uint8_t *w, i64 quads, const int8_t *x, i64 x_row, const int32_t *x_sum, const int rows, const int panels,
                                      int32_t *sums) {
    __m512i sum[TILE8_ROWS * TILE8_PANELS];
#pragma GCC unroll 24
    for (int i = 0; i < rows * panels; i++) sum[i] = _mm512_setzero_si512();
    for (i64 q = 0; q < quads; q++) {
        __m512i weight[TILE8_PANELS];
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) weight[p] = _mm512_loadu_si512(w + (p * quads + q) * 64);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512i value = _mm512_set1_epi32(quad8(x + r * x_row + 4 * q));
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++) ADD_PRODUCTS8(sum[r * panels + p], weight[p], value);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        const __m512i shift = _mm512_set1_epi32(128 * x_sum[r]);
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) _mm512_storeu_si512(sums + (r * panels + p) * PANEL8, _mm512_sub_epi32(sum[r * panels + p], shift));
    }
}

/* one row: weights are read once, from one place after the other, and the next ones are fetched meanwhile */
TARGET8 static INLINE void row8_vnni(const uint8_t *w, i64 quads, const int8_t *x, const int32_t *x_sum, int panels, int32_t *sums) {
    const __m512i shift = _mm512_set1_epi32(128 * x_sum[0]);
    for (int p = 0; p < panels; p++, w += quads * 64) {
        __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
        i64 q = 0;
        for (; q + 4 <= quads; q += 4) {
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) {
                PREFETCH(w + (q + k) * 64 + 4096);
                sum[k] = _mm512_dpbusd_epi32(sum[k], _mm512_loadu_si512(w + (q + k) * 64), _mm512_set1_epi32(quad8(x + 4 * (q + k))));
            }
        }
        for (; q < quads; q++) sum[0] = _mm512_dpbusd_epi32(sum[0], _mm512_loadu_si512(w + q * 64), _mm512_set1_epi32(quad8(x + 4 * q)));
        const __m512i all = _mm512_add_epi32(_mm512_add_epi32(sum[0], sum[1]), _mm512_add_epi32(sum[2], sum[3]));
        _mm512_storeu_si512(sums + p * PANEL8, _mm512_sub_epi32(all, shift));
    }
}

TARGET8 static void tile8_vnni(const uint8_t *w, i64 quads, const int8_t *x, i64 x_row, const int32_t *x_sum, int rows, int panels, int32_t *sums) {
    if (rows == 1) {
        row8_vnni(w, quads, x, x_sum, panels, sums);
    } else if (panels == TILE8_PANELS) {
        switch (rows) {
        case 2: rows8_vnni(w, quads, x, x_row, x_sum, 2, TILE8_PANELS, sums); break;
        case 3: rows8_vnni(w, quads, x, x_row, x_sum, 3, TILE8_PANELS, sums); break;
        case 4: rows8_vnni(w, quads, x, x_row, x_sum, 4, TILE8_PANELS, sums); break;
        case 5: rows8_vnni(w, quads, x, x_row, x_sum, 5, TILE8_PANELS, sums); break;
        default: rows8_vnni(w, quads, x, x_row, x_sum, 6, TILE8_PANELS, sums);
        }
    } else {
        /* the last panels, one at a time */
        int32_t some[TILE8_ROWS * PANEL8];
        for (int p = 0; p < panels; p++) {
            for (int r = 0; r < rows; r += 2) {
                if (rows - r > 1) rows8_vnni(w + p * quads * 64, quads, x + r * x_row, x_row, x_sum + r, 2, 1, some + r * PANEL8);
                else rows8_vnni(w + p * quads * 64, quads, x + r * x_row, x_row, x_sum + r, 1, 1, some + r * PANEL8);
            }
            for (int r = 0; r < rows; r++) memcpy(sums + (r * panels + p) * PANEL8, some + r * PANEL8, sizeof(int32_t) * PANEL8);
        }
    }
}
#undef TARGET8
#endif
