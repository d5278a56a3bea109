/* One copy of the kernels: for one real type and one instruction set.
 *
 * native.c includes this file several times, each time after defining
 *   DOUBLE   0 float, 1 double
 *   LEVEL    0 baseline of the architecture, 1 AVX2 and FMA, 2 AVX-512
 * Vectors are the vector extensions of GCC and clang; without them LANES is 1 and the same code is scalar.
 */

#define JOIN2(x, y, z) x##_##y##_##z
#define JOIN(x, y, z) JOIN2(x, y, z)
#define NAME(x) JOIN(x, DOUBLE, LEVEL)

#if DOUBLE
#define REAL double
#define INT int64_t
#define UINT uint64_t
#define MANTISSA 52
#define BIAS 1023
#define FACTORIALS 13             /* the last significant term of the series of e^x, |x| <= ln(2) / 2 */
#define LN2_HIGH 6.93147180369123816490e-01 /* has so few bits that n LN2_HIGH is exact */
#define LN2_LOW 1.90821492927058770002e-10
#define LOWEST (-708.0)           /* e^x is a normal number above it */
#define INRANGE 170.0             /* |x|, |y| up to which e^{2x} e^{2y} neither overflows nor underflows */
#define SATURATED 340.0           /* tanh x is 1 beyond it, and e^{2x} still finite */
#else
#define REAL float
#define INT int32_t
#define UINT uint32_t
#define MANTISSA 23
#define BIAS 127
#define FACTORIALS 7
#define LN2_HIGH 0.693359375
#define LN2_LOW (-2.12194440054690583e-4)
#define LOWEST (-87.0f)
#define INRANGE 20.0f
#define SATURATED 40.0f
#endif

#if LEVEL == 2
#define BYTES 64
#define TARGET __attribute__((target("avx512f,avx2,fma")))
#elif LEVEL == 1
#define BYTES 32
#define TARGET __attribute__((target("avx2,fma")))
#else
#define BYTES (VECTORS * 16)
#define TARGET
#endif

#if BYTES
#define LANES ((i64)(BYTES / sizeof(REAL)))
typedef REAL NAME(vec) __attribute__((vector_size(BYTES)));
typedef INT NAME(ivec) __attribute__((vector_size(BYTES)));
typedef UINT NAME(bits) __attribute__((vector_size(BYTES)));
typedef REAL NAME(uvec) __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef INT NAME(iuvec) __attribute__((vector_size(BYTES), aligned(sizeof(INT)), may_alias));
#define LOAD(p) ((NAME(vec))*(const NAME(uvec) *)(p))
#define STORE(p, x) (*(NAME(uvec) *)(p) = (x))
/* subtracting zero keeps every value, -0 and NaN included */
#define ALL(x) ((REAL)(x) - (NAME(vec)){0})
#define SELECT(m, x, y) ((NAME(vec))(((NAME(ivec))(m) & (NAME(ivec))(x)) | (~(NAME(ivec))(m) & (NAME(ivec))(y))))
#define WHERE(m, x) ((NAME(vec))((NAME(ivec))(m) & (NAME(ivec))(x)))
#define COUNT(m) (-(NAME(ivec))(m))
#else
#define LANES ((i64)1)
typedef REAL NAME(vec);
typedef INT NAME(ivec);
#define LOAD(p) (*(p))
#define STORE(p, x) (*(p) = (x))
#define ALL(x) ((REAL)(x))
#define SELECT(m, x, y) ((m) ? (x) : (y))
#define WHERE(m, x) ((m) ? (x) : (REAL)0)
#define COUNT(m) ((INT)(m))
#endif
#define VEC NAME(vec)
#define IVEC NAME(ivec)

/* MAXIMUM is a > b ? a : b and MINIMUM is a < b ? a : b: a NaN in a is dropped, a NaN in b is kept. */
#if X86 && LEVEL == 2 && DOUBLE
#define RECIPROCAL(x) ((REAL)1 / (x))
#define SQRT(x) ((VEC)_mm512_sqrt_pd((__m512d)(x)))
#define MAXIMUM(a, b) ((VEC)_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define MINIMUM(a, b) ((VEC)_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#elif X86 && LEVEL == 2
#define RECIPROCAL(x) NAME(newton)(x)
#define ESTIMATE(x) ((VEC)_mm512_rcp14_ps((__m512)(x)))
#define SQRT(x) ((VEC)_mm512_sqrt_ps((__m512)(x)))
#define MAXIMUM(a, b) ((VEC)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define MINIMUM(a, b) ((VEC)_mm512_min_ps((__m512)(a), (__m512)(b)))
#elif X86 && LEVEL == 1 && DOUBLE
#define RECIPROCAL(x) ((REAL)1 / (x))
#define SQRT(x) ((VEC)_mm256_sqrt_pd((__m256d)(x)))
#define MAXIMUM(a, b) ((VEC)_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define MINIMUM(a, b) ((VEC)_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#elif X86 && LEVEL == 1
#define RECIPROCAL(x) NAME(newton)(x)
#define ESTIMATE(x) ((VEC)_mm256_rcp_ps((__m256)(x)))
#define SQRT(x) ((VEC)_mm256_sqrt_ps((__m256)(x)))
#define MAXIMUM(a, b) ((VEC)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define MINIMUM(a, b) ((VEC)_mm256_min_ps((__m256)(a), (__m256)(b)))
#elif X86 && DOUBLE
#define RECIPROCAL(x) ((REAL)1 / (x))
#define SQRT(x) ((VEC)_mm_sqrt_pd((__m128d)(x)))
#define MAXIMUM(a, b) ((VEC)_mm_max_pd((__m128d)(a), (__m128d)(b)))
#define MINIMUM(a, b) ((VEC)_mm_min_pd((__m128d)(a), (__m128d)(b)))
#elif X86
#define RECIPROCAL(x) ((REAL)1 / (x))
#define SQRT(x) ((VEC)_mm_sqrt_ps((__m128)(x)))
#define MAXIMUM(a, b) ((VEC)_mm_max_ps((__m128)(a), (__m128)(b)))
#define MINIMUM(a, b) ((VEC)_mm_min_ps((__m128)(a), (__m128)(b)))
#else
#define RECIPROCAL(x) ((REAL)1 / (x))
#define SQRT(x) NAME(root)(x)
#define MAXIMUM(a, b) NAME(maximum)(a, b)
#define MINIMUM(a, b) NAME(minimum)(a, b)
TARGET static INLINE VEC NAME(maximum)(VEC a, VEC b) { return SELECT(a > b, a, b); }
TARGET static INLINE VEC NAME(minimum)(VEC a, VEC b) { return SELECT(a < b, a, b); }
TARGET static INLINE VEC NAME(root)(VEC x) {
    REAL lanes[LANES];
    STORE(lanes, x);
    for (i64 l = 0; l < LANES; l++) lanes[l] = (REAL)sqrt((double)lanes[l]);
    return LOAD(lanes);
}
#endif

#ifdef ESTIMATE
/* 1 / x from the processor's estimate of 12 or 14 bits and one Newton step: error 2e-7, at half the cost of a division */
TARGET static INLINE VEC NAME(newton)(VEC x) {
    VEC r = ESTIMATE(x);
    return r * ((REAL)2 - x * r);
}
#endif

TARGET static INLINE REAL NAME(total)(VEC x) {
#if BYTES
    REAL sum = 0;
    for (i64 l = 0; l < LANES; l++) sum += x[l];
    return sum;
#else
    return x;
#endif
}

TARGET static INLINE i64 NAME(itotal)(IVEC x) {
#if BYTES
    i64 sum = 0;
    for (i64 l = 0; l < LANES; l++) sum += x[l];
    return sum;
#else
    return x;
#endif
}

TARGET static INLINE REAL NAME(largest)(VEC x) {
#if BYTES
    REAL most = x[0];
    for (i64 l = 1; l < LANES; l++) most = x[l] > most ? x[l] : most;
    return most;
#else
    return x;
#endif
}

/* the first `count` values; the other lanes are filled */
TARGET static INLINE VEC NAME(load_some)(const REAL *from, i64 count, REAL fill) {
    REAL lanes[LANES];
    for (i64 l = 0; l < LANES; l++) lanes[l] = l < count ? from[l] : fill;
    return LOAD(lanes);
}

TARGET static INLINE void NAME(store_some)(REAL *to, i64 count, VEC x) {
    REAL lanes[LANES];
    STORE(lanes, x);
    for (i64 l = 0; l < count; l++) to[l] = lanes[l];
}

/* e^x for |x| below about 0.97 of where it overflows; x outside must have been clamped; NaN stays NaN.
 * x = n ln 2 + r; the Taylor series of e^r on |r| <= ln(2) / 2; 2^n is assembled from bits. */
TARGET static INLINE VEC NAME(exponential)(VEC x) {
#if BYTES
    const REAL shifter = (REAL)1.5 * (REAL)((i64)1 << MANTISSA);
    VEC shifted = x * (REAL)1.4426950408889634074 + shifter;
    VEC n = shifted - shifter;
    VEC r = (x - n * (REAL)LN2_HIGH) - n * (REAL)LN2_LOW;
    VEC sum = ALL(INVERSE_FACTORIAL[FACTORIALS]);
#if defined(__clang__)
#pragma clang loop unroll(full)
#else
#pragma GCC unroll 16
#endif
    for (int f = FACTORIALS - 1; f >= 0; f--) sum = sum * r + (REAL)INVERSE_FACTORIAL[f];
    /* unsigned, because x that was not clamped wraps around */
    NAME(bits) power = ((NAME(bits))shifted << MANTISSA) + ((UINT)BIAS << MANTISSA);
    return sum * (VEC)power;
#else
    return (REAL)exp((double)x);
#endif
}

#include "row_normalizers.h"
#include "additive.h"
#include "feature_maps.h"
#include "dense.h"
#include "vocab_topk.h"
#include "activations.h"
#if !DOUBLE
#include "int8_products.h"
#include "vocab_topk8.h"
#endif
#undef ABOVE
#undef HUGEST
#include "decoder_step.h"
#include "ragged_attention.h"
#include "padded_attention.h"
#if LEVEL == 0
#include "continuations.h"
#endif
#include "rnn_cells.h"
#include "dropout.h"
#include "crf.h"

#undef DOUBLE
#undef LEVEL
#undef NAME
#undef REAL
#undef INT
#undef UINT
#undef MANTISSA
#undef BIAS
#undef FACTORIALS
#undef LN2_HIGH
#undef LN2_LOW
#undef LOWEST
#undef INRANGE
#undef SATURATED
#undef BYTES
#undef TARGET
#undef LANES
#undef LOAD
#undef STORE
#undef ALL
#undef SELECT
#undef WHERE
#undef COUNT
#undef VEC
#undef IVEC
#undef RECIPROCAL
#undef ESTIMATE
#undef SQRT
#undef MAXIMUM
#undef MINIMUM
#undef JOIN
#undef JOIN2
#undef SUM
#undef SUM_OF_LANES
#undef MOST_OF_LANES
#undef LOGARITHM
#undef UNROLLED
