/* Native kernels of regard: additive attention scores, sparse normalizers, gates of feature maps, recurrent cells, vocabulary top-k, dropout,
 * conditional random fields, decoding steps, selection of a beam, products of 8-bit weights.
 * Plain C called by ctypes: no Python, no torch.
 *
 * The kernels are in row_normalizers.h, additive.h, feature_maps.h, rnn_cells.h, dense.h, vocab_topk.h, activations.h, decoder_step.h, ragged_attention.h, padded_attention.h, continuations.h, dropout.h and crf.h, compiled once per real type and
 * instruction set; the widest one that the processor has is chosen at run time. Threads are started for one call and joined before it returns, so no state
 * outlives a call and a fork is safe. Results do not depend on the number of threads.
 *
 * Every exported function that computes returns 0, or 1 if there was no memory.
 */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REGARD_ABI 10

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#if defined(__unix__) || defined(__APPLE__)
#define THREADS 1
#include <pthread.h>
#else
#define THREADS 0
#endif

#if defined(__GNUC__) || defined(__clang__)
#define VECTORS 1
#define INLINE inline __attribute__((always_inline))
/* GCC would compile a long function once per constant argument of its callers, which takes long */
#ifdef __clang__
#define COMPILED_ONCE __attribute__((noinline))
#else
#define COMPILED_ONCE __attribute__((noinline, noclone))
#endif
#define LOWEST_BIT(bits) __builtin_ctzll(bits)
#define PREFETCH(p) __builtin_prefetch(p, 0, 2)
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpsabi"
#pragma clang diagnostic ignored "-Wpass-failed"
#else
/* vectors are only passed between inlined functions */
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
#else
#define VECTORS 0
#define INLINE inline
#define COMPILED_ONCE
#define LOWEST_BIT(bits) lowest_bit(bits)
#define PREFETCH(p) ((void)(p))
static int lowest_bit(uint64_t bits) {
    int at = 0;
    for (; !(bits & 1); bits >>= 1) at++;
    return at;
}
#endif

#if VECTORS && (defined(__x86_64__) || defined(_M_X64))
#define X86 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define X86 0
#endif

typedef int64_t i64;

#include "int8_tiles.h"

/* Rows of activations in 8 bits: x = scale q, and the sum of q; `of` is the place that they were computed from. */
typedef struct {
    int8_t *q;                      /* (rows, row) */
    float *scale;                   /* (rows) */
    int32_t *sum;                   /* (rows) */
    i64 row;                        /* features and padding, a multiple of 4 */
    const void *of;
} rows8;

/* A matrix of 8-bit weights, see int8_tiles.h; bias may be NULL. */
typedef struct {
    const uint8_t *w;
    const float *scale, *bias;      /* (out), (out) */
    i64 in;
    tile8 tile;
} product8;

/* activation(W x + b), or W x + b + other */
enum { ACTIVATION_NONE, ACTIVATION_RELU, ACTIVATION_GELU, ACTIVATION_TANH_GELU };
typedef struct {
    product8 product;
    rows8 quantized;
    const float *x, *other;         /* (rows, in), (rows, out) or NULL */
    float *y;                       /* (rows, out) */
    i64 rows, out, block, part, parts;
    int wide, activation;           /* wide: activations of 32 bits */
} linear8_shape;

/* Strides count elements; the last axis of a, b, w is contiguous; p, lse, g, da, db, dw are contiguous. */
typedef struct {
    const void *a, *b, *w, *g;      /* (n, q, d), (n, k, d), (d), (n, q, k) */
    const unsigned char *allowed;   /* (n, q, k) by strides; 0 forbids; NULL allows all */
    void *p, *lse, *da, *db, *dw;   /* (n, q, k), (n, q) or NULL for scores, (n, q, d), (n, k, d), (n, d) */
    i64 a_n, a_q, b_n, b_k, m_n, m_q, m_k, n, q, k, d;
} additive;

typedef struct {
    const void *s, *g;              /* (n q, m) */
    const unsigned char *allowed;   /* (n, q, m) by strides */
    void *p, *tau;                  /* (n q, m), (n q) */
    i64 m_n, m_q, m_k, q, m;
    int squared;
} rows;

/* inputs that a kernel does not need, and outputs that it is not to compute, are NULL */
typedef struct {
    const void *x, *g, *w, *m;      /* (b, c, n), (b, c, n), (b, c), (b, n) */
    void *out, *dw, *dm;            /* (b, c, n), (b, c), (b, n) */
    void *mean, *most, *at;         /* over positions (b, c), over channels (b, n); `at` has integers as wide as the floats */
    i64 c, n;
    double lam;
} maps;

/* Rows of a block share one row of sums; sums NULL: no gradient is wanted, and the content of s is undefined afterwards */
typedef struct {
    void *s, *nll, *picked, *sums;  /* (count, v), (count), (count), (blocks, v) */
    const void *bias;               /* (v) or NULL */
    const i64 *right;               /* (count) */
    i64 count, v, block;
    double share;                   /* of the target: 1 minus the label smoothing */
} likely;

/* One step of m rows. x has row stride x_row, `before` (the previous h of a GRU, c of an LSTM) before_row; all else is contiguous. The first
 * next_rows rows of the new state are also written to `next`, where the next step reads its state. Backward, h and c are the carried gradients. */
typedef struct {
    const void *x, *p, *bias, *before, *g;   /* (m, gates d), (m, gates d), (gates d) or NULL, (m, d), (m, d) or NULL */
    void *kept, *h, *c, *next, *next_c;      /* (m, 4 d or 5 d), (m, d) each */
    void *dx, *dp;                           /* (m, gates d) each */
    i64 x_row, before_row, next_rows, d;
} cells;

/* All steps: step s has rows 0 to m[s], which begin at at[s] in every array that has rows of all steps; `cell` points to the rows of the first one.
 * Without a backward pass `kept` has the rows of one step. */
enum { TILE = 6 };
typedef struct {
    cells cell;
    const i64 *at, *m;              /* (steps), in the order of running */
    const void *packed;             /* the matrix of the forward or backward product in panels: (panels, k, 2 lanes) */
    void *past;                     /* (most rows, gates d) */
    i64 steps, gates;
    int lstm, back;
} sequence;

/* Dropout of n elements: DRAWS random numbers of 64 bits are made at once, each for four elements */
enum { DRAWS = 64 };
typedef struct {
    const void *x;
    void *out;
    i64 n, least;                   /* elements whose 16 bits are less than this are dropped */
    uint64_t seed;
    double scale;
} drops;

/* Vocabulary top-k: states come in blocks, words in spans; the running results are (spans, room), where room is n and padding. */
enum { WORDS = 6, CHUNK = 16 * WORDS, SPAN = 16 * CHUNK, PADDING = 32 };
typedef struct {
    const void *x, *w, *b;          /* (n, d), (v, d), (v) or NULL */
    const i64 *never;               /* forbidden words, which still count in the sums */
    void *most, *sum, *least, *value, *said; /* (spans, room) each, but (spans, room, k) and (room) */
    i64 *word;                      /* (spans, room, k) */
    unsigned char *began;           /* (blocks, spans): k words of this span and the following ones are stored */
    void *out, *told;               /* (n, k), (n) */
    i64 *ids;                       /* (n, k) */
    i64 n, v, d, k, also, nevers, block, spans, room;
    const float *scales;            /* (v), of 8-bit weights, or NULL */
    tile8 tile;
    int wide;
} vocabulary;

/* Conditional random field. Rows of alpha, x and the constants have `room` elements, a multiple of 16, of which k are used; rows of alpha and x
 * belong to the positions that are kept, without gaps. The constants are filled by crf_prepare. */
enum { CRF_SCALED, CRF_LOGS, CRF_NO_PATH, CRF_NAN, CRF_WIDE };
typedef struct {
    const void *e, *transitions, *start, *end, *g; /* (n, t, k), (k, k), (k), (k), (n) */
    const i64 *y;                   /* (n, t) gold tags, or NULL */
    const unsigned char *mask;      /* (n, t); 0 skips a position; NULL keeps all */
    void *constants, *wide;         /* (3 k + 4, room), and E, its transpose, e^start, e^end as doubles (2 k + 2, room), for floats */
    void *alpha, *x, *out;          /* (n, t, room), (n, t, room), (n) */
    unsigned char *state;           /* (n): one of CRF_… */
    void *de, *dt;                  /* (n, t, k), (blocks, k + 2, k) or NULL */
    i64 *path;                      /* (n, t), -1 behind the end */
    i64 n, t, k, room, block;
    double top, top_start, top_end, spread;
    int holes;                      /* some pair, start or end is forbidden */
} crf;

/* Elements of an activation, and of its gradient. */
enum { ACTIVATION_BLOCK = 4096 };
typedef struct {
    const void *x, *g;              /* (n); g NULL: the values */
    void *out;                      /* (n) */
    i64 n;
} activations;

/* A step of decoding: one token per row, `per` rows per sentence. A cache of a layer is eight numbers: the addresses of keys and values, and the
 * strides of sentence, head and column of each; a layer has that of its own tokens and that of the source. Weights are addresses in the order of
 * decoder_step.h, biases may be NULL; FEW is the largest number of rows that are multiplied row by row. */
enum { STEP_WEIGHTS = 22, FEW = 6 };
enum { DENSE_SET, DENSE_ADD, DENSE_RELU };
/* What heads have beside their projections and a softmax of dot products; decoder_step.py has the same fields. */
enum { NORM_NONE, NORM_RMS, NORM_WHOLE_RMS, NORM_LAYER, NORM_L2 };
typedef struct {
    const void *gain[2], *offset[2]; /* of the norm of queries and of keys; NULL: 1 and 0 */
    const void *gate[2];            /* weight (gates, d) and bias of the gate of the output, or NULL */
    const void *sink;               /* score of the null slot, at every `sink_step` one of a head; NULL: no slot */
    const void *cosine, *sine;      /* (pairs): of the angles by which queries and keys are rotated; NULL: they are not */
    i64 norm, gates, sink_step, pairs, neighbours; /* neighbours: pairs are 2k and 2k + 1, otherwise k and k + pairs */
    double eps, base;               /* of the norm: base + gain is its factor */
    double cap, cooling;            /* cooling · cap tanh(s / cap); cap 0: cooling · s */
    const void *difference[4];      /* (width): vectors of the difference of paired maps, or NULL */
    double start, difference_eps;   /* λ₀, and that of its norm */
} step_parts;
/* The keys and values of one row of a step, with the strides of sentence, head and column of each, and the columns that it attends to. */
typedef struct {
    const void *keys, *values;
    const i64 *key, *value, *index; /* index NULL: the first `count` columns */
    i64 count;
} keys_of_row;
typedef struct {
    const void *const *weights;     /* (layers, STEP_WEIGHTS), then weight and bias of the last norm, or NULL */
    const i64 *caches;              /* (layers, 16) */
    const i64 *index;               /* (rows, columns): the columns of each row's past, its own last; NULL: 0 to columns */
    const i64 *counts;              /* (rows): how many of these columns there are; NULL: all */
    const i64 *lengths;             /* (sentences): keys of the source */
    const void *x;                  /* (rows, d) */
    void *out;                      /* (rows, d) */
    i64 rows, per, columns, source, at, d, feed, heads, kv_heads, width, layers, block, longest;
    double scale, eps;
    int norm_first, gelu;
    const float *const *scales;     /* at the places of 8-bit weights: their scales, NULL for others; NULL: all weights are floats */
    tile8 tile;
    rows8 *quantized;
    int wide;                       /* activations of 32 bits beside 8-bit weights */
    const step_parts *parts;        /* of a single attention; NULL: none */
} step_shape;

/* Texts one behind the other: text n has the rows starts[n] to starts[n + 1]; the longest has `longest`. */
typedef struct {
    const void *x, *bias;           /* (rows, 3 heads width): queries, keys and values; (3 heads width), added to each row */
    void *out;                      /* (rows, heads width) */
    const i64 *starts;              /* (texts + 1) */
    i64 heads, width, longest;
    double scale;
} ragged_shape;

/* Samples with an interval of keys each; strides count elements of samples, heads and positions, the last axis is contiguous. Backward
 * reads out and lse, and writes dq, dk and dv. A causal query i, the last ones of the keys, sees the keys up to its own. */
typedef struct {
    const void *q, *k, *v, *g;      /* (b, heads, queries, width), (b, kv_heads, keys, width) twice, (b, heads, queries, width) */
    void *out, *lse;                /* (b, queries, heads, width), (b, heads, queries) */
    void *dq, *dk, *dv;             /* (b, queries, heads, width), (b, keys, kv_heads, width) twice */
    const i64 *spans;               /* (b, 2): the first key and the end */
    i64 q_b, q_h, q_n, k_b, k_h, k_n, v_b, v_h, v_n, g_b, g_h, g_n, heads, kv_heads, queries, keys, width;
    double scale;
    int causal;
} padded_shape;

/* Candidates of a beam: k tokens of n hypotheses per sentence; `others` is at most n k. */
typedef struct {
    const void *log_p, *end, *log_prob; /* (rows, n, k), (rows, n), (rows, n) */
    const i64 *token;               /* (rows, n, k) */
    void *ends, *going, *margin;    /* (rows, n), (rows, greedy + others), (rows) */
    i64 *slot, *next;               /* (rows, greedy + others) */
    i64 *seen;                      /* (2): whether there is an end, and an impossible continuation */
    i64 n, k, eos, others;
    int greedy;
} candidates;

#if VECTORS
static const double INVERSE_FACTORIAL[] = {1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
    1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
#endif

#define LEVEL 0
#define DOUBLE 0
#include "simd_instance.h"
#define LEVEL 0
#define DOUBLE 1
#include "simd_instance.h"
#if X86
#define LEVEL 1
#define DOUBLE 0
#include "simd_instance.h"
#define LEVEL 1
#define DOUBLE 1
#include "simd_instance.h"
#define LEVEL 2
#define DOUBLE 0
#include "simd_instance.h"
#define LEVEL 2
#define DOUBLE 1
#include "simd_instance.h"
#endif

typedef int (*kernel)(const void *context, i64 begin, i64 end);
typedef void *(*pack)(const void *u, i64 n, i64 k, i64 u_n, i64 u_k);

#if X86
#define COPIES(name) {{name##_0_0, name##_1_0}, {name##_0_1, name##_1_1}, {name##_0_2, name##_1_2}}
#else
#define COPIES(name) {{name##_0_0, name##_1_0}, {name##_0_0, name##_1_0}, {name##_0_0, name##_1_0}}
#endif
static const kernel FORWARD[3][2] = COPIES(forward);
static const kernel BACKWARD[3][2] = COPIES(backward);
static const kernel SOFTMAX_BACKWARD[3][2] = COPIES(softmax_backward);
static const kernel SPARSE[3][2] = COPIES(sparse);
static const kernel SPARSE_BACKWARD[3][2] = COPIES(sparse_backward);
static const kernel LIKELIHOOD[3][2] = COPIES(likelihood);
static const kernel SIMAM[2][3][2] = {COPIES(simam), COPIES(simam_backward)};
static const kernel POOL[2][3][2] = {COPIES(pool), COPIES(pool_backward)};
static const kernel ACROSS[2][3][2] = {COPIES(across), COPIES(across_backward)};
static const kernel SCALE[2][3][2] = {COPIES(scale), COPIES(scale_backward)};
static const kernel CELL[2][2][3][2] = {{COPIES(gru), COPIES(gru_backward)}, {COPIES(lstm), COPIES(lstm_backward)}};
static const kernel SEQUENCE[2][3][2] = {COPIES(sequence), COPIES(sequence_backward)};
static const pack PACK[3][2] = COPIES(packed);
static const kernel DROP[3][2] = COPIES(drop);
static const kernel GELU[3][2] = COPIES(gelu);
static const kernel LIKELIEST[3][2] = COPIES(likeliest);
static const kernel TOGETHER[3][2] = COPIES(together);
static const kernel DECODER_STEP[3][2] = COPIES(decoder_step);
static const kernel RAGGED[3][2] = COPIES(ragged);
#if X86
#define FLOAT_COPIES(name) {name##_0_0, name##_0_1, name##_0_2}
#else
#define FLOAT_COPIES(name) {name##_0_0, name##_0_0, name##_0_0}
#endif
static const kernel LINEAR8[3] = FLOAT_COPIES(linear8);
static const kernel QUANTIZE_ROWS[3] = FLOAT_COPIES(quantize_rows);
static const kernel LIKELIEST8[3] = FLOAT_COPIES(likeliest8);
static const kernel PADDED[2][3][2] = {COPIES(padded), COPIES(padded_backward)};

static const kernel CRF_PREPARE[3][2] = COPIES(crf_prepare);
static const kernel CRF_FORWARD[3][2] = COPIES(crf_forward);
static const kernel CRF_BACKWARD[3][2] = COPIES(crf_backward);
static const kernel CRF_VITERBI[3][2] = COPIES(crf_viterbi);

#include "threads.h"

EXPORT int regard_abi(void) { return REGARD_ABI; }

/* 0 baseline, 1 AVX2, 2 AVX-512; the compiler decides whether the baseline is vector code */
EXPORT int regard_level(int most) { return widest(most); }

/* 0 if none of the numbers has an exponent of ones, as NaN and the infinities have, 1 if one has */
EXPORT int regard_nonfinite(int wide, i64 n, const void *numbers) {
    int found = 0;
    if (wide)
        for (i64 i = 0; i < n; i++) found |= (~((const uint64_t *)numbers)[i] & 0x7ff0000000000000u) == 0;
    else
        for (i64 i = 0; i < n; i++) found |= (~((const uint32_t *)numbers)[i] & 0x7f800000u) == 0;
    return found;
}

EXPORT int regard_additive_forward(int wide, int most, i64 threads, i64 n, i64 q, i64 k, i64 d, const void *a, i64 a_n, i64 a_q,
                                   const void *b, i64 b_n, i64 b_k, const void *w, const void *allowed, i64 m_n, i64 m_q,
                                   i64 m_k, void *p, void *lse) {
    additive t = {0};
    t.a = a, t.b = b, t.w = w, t.allowed = allowed, t.p = p, t.lse = lse;
    t.a_n = a_n, t.a_q = a_q, t.b_n = b_n, t.b_k = b_k, t.m_n = m_n, t.m_q = m_q, t.m_k = m_k;
    t.n = n, t.q = q, t.k = k, t.d = d;
    double cost = (double)n * q * k * (d + 1) * (q < 2 ? 4 : 1);
    return run(FORWARD[widest(most)][!!wide], &t, n * ((q + ROWS - 1) / ROWS), cost, 1e6, threads);
}

EXPORT int regard_additive_backward(int wide, int most, i64 threads, i64 n, i64 q, i64 k, i64 d, const void *a, i64 a_n, i64 a_q,
                                    const void *b, i64 b_n, i64 b_k, const void *w, const void *g, void *da, void *db,
                                    void *dw) {
    additive t = {0};
    t.a = a, t.b = b, t.w = w, t.g = g, t.da = da, t.db = db, t.dw = dw;
    t.a_n = a_n, t.a_q = a_q, t.b_n = b_n, t.b_k = b_k, t.n = n, t.q = q, t.k = k, t.d = d;
    const int level = widest(most);
    const i64 bytes = level == 2 ? 64 : level == 1 ? 32 : VECTORS ? 16 : wide ? 8 : 4, lanes = bytes / (wide ? 8 : 4);
    return run(BACKWARD[level][!!wide], &t, n * ((d + lanes - 1) / lanes), (double)n * q * k * (d + 1), 5e5, threads);
}

EXPORT int regard_softmax_backward(int wide, int most, i64 threads, i64 count, i64 m, const void *p, const void *g,
                                   const void *g_lse, void *ds) {
    rows t = {0};
    t.s = p, t.g = g, t.tau = (void *)g_lse, t.p = ds, t.m = m;
    return run(SOFTMAX_BACKWARD[widest(most)][!!wide], &t, count, (double)count * m, 3e5, threads);
}

/* count = n q rows; the strides of the mask are of (n, q, m) */
EXPORT int regard_sparse(int wide, int most, i64 threads, int squared, i64 count, i64 m, const void *s, const void *allowed, i64 q,
                         i64 m_n, i64 m_q, i64 m_k, void *p, void *tau) {
    rows t = {0};
    t.s = s, t.allowed = allowed, t.q = q, t.m_n = m_n, t.m_q = m_q, t.m_k = m_k, t.m = m, t.p = p, t.tau = tau;
    t.squared = squared;
    return run(SPARSE[widest(most)][!!wide], &t, count, (double)count * m, 2e5, threads);
}

EXPORT int regard_sparse_backward(int wide, int most, i64 threads, int squared, i64 count, i64 m, const void *p, const void *g,
                                  void *ds) {
    rows t = {0};
    t.s = p, t.g = g, t.p = ds, t.m = m, t.squared = squared;
    return run(SPARSE_BACKWARD[widest(most)][!!wide], &t, count, (double)count * m, 3e5, threads);
}

EXPORT int regard_likelihood(int wide, int most, i64 threads, i64 count, i64 v, i64 block, double share, void *s, const void *bias,
                             const void *right, void *nll, void *picked, void *sums) {
    likely t = {0};
    t.s = s, t.bias = bias, t.right = right, t.nll = nll, t.picked = picked, t.sums = sums, t.share = share;
    t.count = count, t.v = v, t.block = block;
    return run(LIKELIHOOD[widest(most)][!!wide], &t, (count + block - 1) / block, (double)count * v, 2e5, threads);
}

/* rows = b c, of n positions each; g NULL: forward */
EXPORT int regard_simam(int wide, int most, i64 threads, i64 rows_, i64 n, double lam, const void *x, const void *g, void *mean,
                        void *v, void *out) {
    maps t = {0};
    t.x = x, t.g = g, t.mean = mean, t.most = v, t.out = out, t.n = n, t.lam = lam;
    return run(SIMAM[g != NULL][widest(most)][!!wide], &t, rows_, (double)rows_ * n, 1e5, threads);
}

/* the mean, and the maximum unless `top` is NULL; out NULL: forward, else both are gradients that are added to out */
EXPORT int regard_pool(int wide, int most, i64 threads, i64 rows_, i64 n, const void *x, void *mean, void *top, void *at,
                       void *out) {
    maps t = {0};
    t.x = x, t.mean = mean, t.most = top, t.at = at, t.out = out, t.n = n;
    return run(POOL[out != NULL][widest(most)][!!wide], &t, rows_, (double)rows_ * n, 3e5, threads);
}

/* out NULL: forward, else mean and top are gradients, which are propagated to out and dw */
EXPORT int regard_across(int wide, int most, i64 threads, i64 b, i64 c, i64 n, const void *x, const void *w, void *mean, void *top,
                         void *at, void *out, void *dw) {
    maps t = {0};
    t.x = x, t.w = w, t.mean = mean, t.most = top, t.at = at, t.out = out, t.dw = dw, t.c = c, t.n = n;
    const i64 items = out ? b * c : b * ((n + MAP_BLOCK - 1) / MAP_BLOCK);
    return run(ACROSS[out != NULL][widest(most)][!!wide], &t, items, (double)b * c * n, 3e5, threads);
}

/* w or m NULL: no such factor; g NULL: forward */
EXPORT int regard_scale(int wide, int most, i64 threads, i64 b, i64 c, i64 n, const void *x, const void *w, const void *m,
                        const void *g, void *out, void *dw, void *dm) {
    maps t = {0};
    t.x = x, t.w = w, t.m = m, t.g = g, t.out = out, t.dw = dw, t.dm = dm, t.c = c, t.n = n;
    return run(SCALE[g != NULL][widest(most)][!!wide], &t, g && m ? b : b * c, (double)b * c * n, 3e5, threads);
}

/* c NULL: a GRU, else an LSTM */
EXPORT int regard_cell(int wide, int most, i64 threads, i64 m, i64 d, const void *x, i64 x_row, const void *p, const void *bias,
                       const void *before, i64 before_row, void *kept, void *h, void *c, void *next, void *next_c, i64 next_rows) {
    cells t = {0};
    t.x = x, t.x_row = x_row, t.p = p, t.bias = bias, t.before = before, t.before_row = before_row, t.kept = kept, t.h = h, t.c = c;
    t.next = next, t.next_c = next_c, t.next_rows = next_rows, t.d = d;
    return run(CELL[c != NULL][0][widest(most)][!!wide], &t, m, (double)m * d, 3e4, threads);
}

/* carry and carry_c are the gradients of the state after the step, and become the gradients of the state before it; dp is written for a GRU only */
EXPORT int regard_cell_backward(int wide, int most, i64 threads, i64 m, i64 d, const void *g, const void *kept, const void *before,
                                i64 before_row, void *carry, void *carry_c, void *dx, void *dp) {
    cells t = {0};
    t.g = g, t.kept = (void *)kept, t.before = before, t.before_row = before_row, t.h = carry, t.c = carry_c, t.dx = dx, t.dp = dp, t.d = d;
    return run(CELL[carry_c != NULL][1][widest(most)][!!wide], &t, m, (double)m * d, 6e4, threads);
}

/* A GRU or, if c is not NULL, an LSTM over all steps: x and p = before Uᵀ to h; kept has one step unless `back`. `before` and before_c already hold
 * the initial states. at, m: (steps), in the order of running. Sequences are independent, so each thread takes some of them. */
EXPORT int regard_sequence(int wide, int most, i64 threads, i64 steps, i64 d, const i64 *at, const i64 *m, const void *x, const void *u,
                           const void *bias, void *past, void *before, void *before_c, void *kept, void *h, void *c, int back) {
    sequence t = {0};
    const int level = widest(most);
    i64 rows_ = 0, all = 0;
    for (i64 s = 0; s < steps; s++) rows_ = m[s] > rows_ ? m[s] : rows_, all += m[s];
    t.lstm = c != NULL, t.gates = t.lstm ? 4 : 3, t.back = back, t.at = at, t.m = m, t.steps = steps, t.past = past;
    t.cell.x = x, t.cell.bias = bias, t.cell.before = before, t.cell.next = before, t.cell.next_c = before_c, t.cell.kept = kept, t.cell.h = h;
    t.cell.c = c, t.cell.d = d;
    void *panels = PACK[level][!!wide](u, t.gates * d, d, d, 1);
    if (!panels) return 1;
    t.packed = panels;
    const double cost = (double)all * t.gates * d * d;
    const int failed = run(SEQUENCE[0][level][!!wide], &t, (rows_ + TILE - 1) / TILE, cost, 1e7, threads);
    free(panels);
    return failed;
}

/* the backward pass: g of every h to dx and, for a GRU, dp; carry and carry_c start as zeros and become the gradients of the initial states */
EXPORT int regard_sequence_backward(int wide, int most, i64 threads, i64 steps, i64 d, const i64 *at, const i64 *m, const void *g, const void *u,
                                    const void *kept, const void *before, const void *before_c, void *carry, void *carry_c, void *dx, void *dp) {
    sequence t = {0};
    const int level = widest(most);
    i64 rows_ = 0, all = 0;
    for (i64 s = 0; s < steps; s++) rows_ = m[s] > rows_ ? m[s] : rows_, all += m[s];
    t.lstm = carry_c != NULL, t.gates = t.lstm ? 4 : 3, t.at = at, t.m = m, t.steps = steps;
    t.cell.g = g, t.cell.kept = (void *)kept, t.cell.before = t.lstm ? before_c : before, t.cell.h = carry, t.cell.c = carry_c;
    t.cell.dx = dx, t.cell.dp = dp, t.cell.d = d;
    void *panels = PACK[level][!!wide](u, d, t.gates * d, 1, d);
    if (!panels) return 1;
    t.packed = panels;
    const double cost = (double)all * t.gates * d * d;
    const int failed = run(SEQUENCE[1][level][!!wide], &t, (rows_ + TILE - 1) / TILE, cost, 1e7, threads);
    free(panels);
    return failed;
}

/* out = x / (1 - p), or 0 with probability p = least / 2^16; the same seed gives the same result, so the backward pass computes it again */
EXPORT int regard_drop(int wide, int most, i64 threads, i64 n, const void *x, i64 seed, i64 least, double scale, void *out) {
    drops t = {0};
    t.x = x, t.out = out, t.n = n, t.least = least, t.seed = (uint64_t)seed, t.scale = scale;
    return run(DROP[widest(most)][!!wide], &t, (n + 4 * DRAWS - 1) / (4 * DRAWS), (double)n, 1e6, threads);
}

/* gelu(x), or g gelu'(x) */
EXPORT int regard_gelu(int wide, int most, i64 threads, i64 n, const void *x, const void *g, void *out) {
    activations t = {0};
    t.x = x, t.g = g, t.out = out, t.n = n;
    return run(GELU[widest(most)][!!wide], &t, (n + ACTIVATION_BLOCK - 1) / ACTIVATION_BLOCK, (double)n, 1e6, threads);
}

static int run_likeliest(vocabulary *t, int wide, int most, i64 threads) {
    const i64 n = t->n, v = t->v, d = t->d, k = t->k;
    if (n <= 0) return 0;
    /* as many states as the L2 cache holds beside a chunk of words, in blocks of equal size; more blocks for more threads */
    const i64 size = wide ? 8 : 4, fit = 262144 / (d * size + 1) + 1, small = (n + 2 * PADDING - 1) / (2 * PADDING);
    i64 blocks = (n + fit - 1) / fit;
    if (blocks < threads) blocks = threads < small ? threads : small;
    t->block = ((n + blocks - 1) / blocks + PADDING - 1) / PADDING * PADDING;
    blocks = (n + t->block - 1) / t->block;
    t->spans = (v + SPAN - 1) / SPAN, t->room = blocks * t->block;
    const i64 kept = t->spans * t->room;
    char *scratch = malloc((size_t)(kept * k * 8 + kept * (3 + k) * size + t->room * size + blocks * t->spans));
    if (!scratch) return 1;
    char *place = scratch;
    t->word = (i64 *)place, place += kept * k * 8;
    t->value = place, place += kept * k * size;
    t->most = place, place += kept * size;
    t->sum = place, place += kept * size;
    t->least = place, place += kept * size;
    t->said = place, place += t->room * size;
    t->began = (unsigned char *)place;
    memset(t->began, 0, (size_t)(blocks * t->spans));
    const kernel work = t->scales ? LIKELIEST8[widest(most)] : LIKELIEST[widest(most)][!!wide];
    int failed = run(work, t, blocks * t->spans, (double)n * v * d, 1e7, threads);
    if (!failed) run(TOGETHER[widest(most)][!!wide], t, n, (double)n * t->spans * k, 1e5, threads);
    free(scratch);
    return failed;
}

/* for each state the k words of largest W x + b that are not among `never`, and the word `also`: their log-probabilities */
EXPORT int regard_likeliest(int wide, int most, i64 threads, i64 n, i64 v, i64 d, i64 k, const void *x, const void *w, const void *b,
                            i64 also, i64 nevers, const i64 *never, void *out, i64 *ids, void *told) {
    vocabulary t = {0};
    t.x = x, t.w = w, t.b = b, t.n = n, t.v = v, t.d = d, t.k = k, t.also = also, t.nevers = nevers, t.never = never;
    t.out = out, t.ids = ids, t.told = told;
    return run_likeliest(&t, wide, most, threads);
}

/* the same with 8-bit weights and the scales of their rows; is_float: the states are not quantised */
EXPORT int regard_int8_likeliest(int wide, int most, i64 threads, i64 n, i64 v, i64 d, i64 k, const void *x, const void *w, const void *scales,
                                 const void *b, int is_float, i64 also, i64 nevers, const i64 *never, void *out, i64 *ids, void *told) {
    vocabulary t = {0};
    (void)wide;
    t.x = x, t.w = w, t.scales = scales, t.b = b, t.n = n, t.v = v, t.d = d, t.k = k, t.also = also, t.nevers = nevers, t.never = never;
    t.out = out, t.ids = ids, t.told = told, t.tile = integer_tile(most), t.wide = is_float;
    return run_likeliest(&t, 0, most, threads);
}

/* sums (rows, out) of weights and of activations that have 8 bits already, (rows, in): equal for all instruction sets */
EXPORT int regard_int8_sums(int wide, int most, i64 threads, i64 rows_, i64 out, i64 in, const int8_t *x, const uint8_t *w, int32_t *sums) {
    const i64 quads = (in + 3) / 4, panels = (out + PANEL8 - 1) / PANEL8;
    (void)wide, (void)threads;
    int8_t *row = calloc((size_t)(TILE8_ROWS * quads * 4 + 1), 1);
    if (!row) return 1;
    for (i64 from = 0; from < rows_; from += TILE8_ROWS) {
        const int some = rows_ - from < TILE8_ROWS ? (int)(rows_ - from) : TILE8_ROWS;
        int32_t x_sum[TILE8_ROWS] = {0}, tile[TILE8_ROWS * TILE8_PANELS * PANEL8];
        for (int r = 0; r < some; r++) {
            memcpy(row + r * quads * 4, x + (from + r) * in, (size_t)in);
            for (i64 i = 0; i < in; i++) x_sum[r] += x[(from + r) * in + i];
        }
        for (i64 p = 0; p < panels; p += TILE8_PANELS) {
            const int count = panels - p < TILE8_PANELS ? (int)(panels - p) : TILE8_PANELS;
            integer_tile(most)(w + p * quads * 4 * PANEL8, quads, row, quads * 4, x_sum, some, count, tile);
            for (int r = 0; r < some; r++)
                for (i64 o = p * PANEL8; o < out && o < (p + count) * PANEL8; o++) sums[(from + r) * out + o] = tile[r * count * PANEL8 + o - p * PANEL8];
        }
    }
    free(row);
    return 0;
}

/* y (rows, out) = activation(W x + b), or W x + b + other; is_float: x is not quantised */
EXPORT int regard_int8_linear(int wide, int most, i64 threads, i64 rows_, i64 out, i64 in, int is_float, int activation, const float *x,
                              const uint8_t *w, const float *scale, const float *bias, const float *other, float *y) {
    linear8_shape t = {0};
    const i64 row = (in + 3) / 4 * 4, parts = threads > 1 ? threads : 1;
    const int level = widest(most);
    (void)wide;
    if (rows_ <= 0) return 0;
    t.product.w = w, t.product.scale = scale, t.product.bias = bias, t.product.in = in, t.product.tile = integer_tile(most);
    t.x = x, t.other = other, t.y = y, t.rows = rows_, t.out = out, t.wide = is_float, t.activation = activation;
    char *scratch = is_float ? NULL : malloc((size_t)(rows_ * (row + 8)));
    if (!is_float && !scratch) return 1;
    t.quantized.scale = (float *)scratch, t.quantized.sum = (int32_t *)scratch + rows_, t.quantized.q = (int8_t *)scratch + 8 * rows_;
    t.quantized.row = row;
    if (!is_float) run(QUANTIZE_ROWS[level], &t, rows_, (double)rows_ * in, 1e6, threads);
    /* blocks of rows whose outputs stay in the cache; of few rows, the outputs are shared among threads */
    const i64 fit = 65536 / out / TILE8_ROWS * TILE8_ROWS;
    t.block = fit < 8 * TILE8_ROWS ? 8 * TILE8_ROWS : fit;
    const i64 blocks = (rows_ + t.block - 1) / t.block, unit = TILE8_PANELS * PANEL8;
    t.part = blocks >= parts ? out : ((out + parts - 1) / parts + unit - 1) / unit * unit;
    t.parts = (out + t.part - 1) / t.part;
    const int failed = run(LINEAR8[level], &t, blocks * t.parts, (double)rows_ * out * in, 2e7, threads);
    free(scratch);
    return failed;
}

/* The constants of a call and one kernel over its items */
static int run_crf(const kernel kernels[3][2], crf *t, int wide, int most, i64 items, double grain, i64 threads) {
    const int level = widest(most);
    t->room = (t->k + 15) / 16 * 16;
    t->constants = malloc((size_t)((3 * t->k + 4) * t->room) * (wide ? 8 : 4));
    t->wide = wide ? NULL : malloc((size_t)((2 * t->k + 2) * t->room) * sizeof(double));
    if (!t->constants || !(wide || t->wide)) {
        free(t->constants), free(t->wide);
        return 1;
    }
    CRF_PREPARE[level][!!wide](t, 0, 1);
    const int failed = run(kernels[level][!!wide], t, items, (double)t->n * t->t * t->k * (t->k + 8), grain, threads);
    free(t->constants), free(t->wide);
    return failed;
}

/* log Z, minus the score of the gold path unless y is NULL; alpha, x and state are what the backward pass reads */
EXPORT int regard_crf(int wide, int most, i64 threads, i64 n, i64 length, i64 k, const void *e, const i64 *y, const void *mask, const void *transitions,
                      const void *start, const void *end, void *alpha, void *x, void *state, void *out) {
    crf t = {0};
    t.e = e, t.y = y, t.mask = mask, t.transitions = transitions, t.start = start, t.end = end, t.alpha = alpha, t.x = x, t.state = state, t.out = out;
    t.n = n, t.t = length, t.k = k;
    return run_crf(CRF_FORWARD, &t, wide, most, n, 5e5, threads);
}

/* the gradients of the emissions and, unless dt is NULL, of T, start and end, one sum per block of sequences */
EXPORT int regard_crf_backward(int wide, int most, i64 threads, i64 n, i64 length, i64 k, i64 block, const void *e, const i64 *y, const void *mask,
                               const void *transitions, const void *start, const void *end, const void *alpha, const void *x, const void *state,
                               const void *g, void *de, void *dt) {
    crf t = {0};
    t.e = e, t.y = y, t.mask = mask, t.transitions = transitions, t.start = start, t.end = end, t.alpha = (void *)alpha, t.x = (void *)x;
    t.state = (void *)state, t.g = g, t.de = de, t.dt = dt, t.n = n, t.t = length, t.k = k, t.block = block;
    return run_crf(CRF_BACKWARD, &t, wide, most, (n + block - 1) / block, 3e5, threads);
}

/* the path of largest score and that score, -inf if no path is allowed */
EXPORT int regard_viterbi(int wide, int most, i64 threads, i64 n, i64 length, i64 k, const void *e, const void *mask, const void *transitions,
                          const void *start, const void *end, i64 *path, void *out) {
    crf t = {0};
    t.e = e, t.mask = mask, t.transitions = transitions, t.start = start, t.end = end, t.path = path, t.out = out, t.n = n, t.t = length, t.k = k;
    return run_crf(CRF_VITERBI, &t, wide, most, n, 5e5, threads);
}

/* rows in blocks of whole panels, one block per thread; of an encoder in blocks of whole sentences */
static int run_step(step_shape *t, int wide, int most, i64 threads, double cost) {
    if (t->rows <= 0) return 0;
    const i64 parts = threads > 1 ? threads : 1, unit = t->columns ? PADDING : t->per;
    t->block = ((t->rows + parts - 1) / parts + unit - 1) / unit * unit;
    return run(DECODER_STEP[widest(most)][!!wide], t, (t->rows + t->block - 1) / t->block, cost, 1e7, threads);
}

/* One token per row through the layers of a decoder and its last norm. `at` is the first new column of the caches, `columns` the length of a past;
 * 0: an encoder, in which a row attends to the first tokens of its sentence, as many as `lengths` says, and to nothing else. `scales` are those of 8-bit
 * weights at their places; NULL: all weights are floats. */
EXPORT int regard_int8_decoder_step(int wide, int most, i64 threads, i64 rows_, i64 per, i64 columns, i64 at, i64 d, i64 feed, i64 heads, i64 layers,
                                    i64 source, int norm_first, double scale, double eps, const void *weights, const void *scales, int is_float,
                                    const void *caches, const i64 *index, const i64 *lengths, const void *x, void *out) {
    step_shape t = {0};
    t.rows = rows_, t.per = per, t.columns = columns, t.at = at, t.d = d, t.feed = feed, t.heads = t.kv_heads = heads, t.width = d / heads;
    t.layers = layers, t.source = source, t.longest = columns > source ? columns : source, t.norm_first = norm_first, t.scale = scale, t.eps = eps;
    t.weights = weights, t.caches = caches, t.index = index, t.lengths = lengths, t.x = x, t.out = out;
    t.scales = scales, t.wide = is_float, t.tile = integer_tile(most);
    return run_step(&t, wide, most, threads, (double)rows_ * layers * d * (6 * d + 2 * feed));
}

/* One token per row through layers that attend to their own cache alone, and the last norm; gelu: that activation instead of relu. visible (rows,
 * columns) is nonzero for the columns that a row attends to; NULL: all. `scales` as above. */
EXPORT int regard_int8_stack_step(int wide, int most, i64 threads, i64 rows_, i64 columns, i64 d, i64 feed, i64 heads, i64 layers, int norm_first,
                                  int gelu, double scale, double eps, const void *weights, const void *scales, int is_float, const void *caches,
                                  const unsigned char *visible, const void *x, void *out) {
    step_shape t = {0};
    i64 *index = visible ? malloc((size_t)(rows_ * (columns + 1) + 1) * sizeof(i64)) : NULL, *counts = index;
    if (visible && !index) return 1;
    if (visible) counts += rows_ * columns;
    for (i64 r = 0; visible && r < rows_; r++) {
        counts[r] = 0;
        for (i64 j = 0; j < columns; j++)
            if (visible[r * columns + j]) index[r * columns + counts[r]++] = j;
    }
    t.rows = rows_, t.per = 1, t.columns = t.longest = columns, t.at = columns - 1, t.d = d, t.feed = feed, t.heads = t.kv_heads = heads;
    t.width = d / heads, t.layers = layers, t.norm_first = norm_first, t.gelu = gelu, t.scale = scale, t.eps = eps;
    t.weights = weights, t.caches = caches, t.index = index, t.counts = counts, t.x = x, t.out = out;
    t.scales = scales, t.wide = is_float, t.tile = integer_tile(most);
    const int failed = run_step(&t, wide, most, threads, (double)rows_ * layers * d * (4 * d + 2 * feed));
    free(index);
    return failed;
}

/* One token per row through q, k, v, the cache that they extend, and the output projection: weights and biases of q, k, v and out. `parts` are norms and a
 * rotation of queries and keys, a bound on the scores, a null slot, a difference of maps and a gate before the output projection. */
EXPORT int regard_heads_step_with_parts(int wide, int most, i64 threads, i64 rows_, i64 columns, i64 d, i64 heads, i64 kv_heads, i64 width, double scale,
                                        const void *weights, const void *caches, const void *parts, const void *x, void *out) {
    step_shape t = {0};
    t.rows = rows_, t.per = 1, t.columns = t.longest = columns, t.at = columns - 1, t.d = d, t.heads = heads, t.kv_heads = kv_heads, t.width = width;
    t.scale = scale, t.weights = weights, t.caches = caches, t.x = x, t.out = out, t.parts = parts;
    return run_step(&t, wide, most, threads, (double)rows_ * (5 * d * heads * width + 2 * columns * heads * width));
}

/* The same without parts. */
EXPORT int regard_heads_step(int wide, int most, i64 threads, i64 rows_, i64 columns, i64 d, i64 heads, i64 kv_heads, i64 width, double scale,
                             const void *weights, const void *caches, const void *x, void *out) {
    return regard_heads_step_with_parts(wide, most, threads, rows_, columns, d, heads, kv_heads, width, scale, weights, caches, NULL, x, out);
}

/* softmax(scale q kᵀ) v within every text and head, of the rows of x + bias */
EXPORT int regard_ragged(int wide, int most, i64 threads, i64 texts, i64 heads, i64 width, i64 longest, double scale, const i64 *starts, const void *x,
                         const void *bias, void *out) {
    ragged_shape t = {0};
    t.starts = starts, t.x = x, t.bias = bias, t.out = out, t.heads = heads, t.width = width, t.longest = longest, t.scale = scale;
    return run(RAGGED[widest(most)][!!wide], &t, texts, (double)texts * longest * longest * heads * width, 1e6, threads);
}

/* softmax(scale q kᵀ) v over each sample's keys, or its gradients if there is a g; `strides` are those of q, k, v and g */
EXPORT int regard_padded(int wide, int most, i64 threads, i64 b, i64 heads, i64 kv_heads, i64 queries, i64 keys, i64 width, double scale, int causal,
                         const i64 *strides, const i64 *spans, const void *q, const void *k, const void *v, void *out, void *lse, const void *g,
                         void *dq, void *dk, void *dv) {
    padded_shape t = {0};
    t.q = q, t.k = k, t.v = v, t.g = g, t.out = out, t.lse = lse, t.dq = dq, t.dk = dk, t.dv = dv, t.spans = spans;
    t.q_b = strides[0], t.q_h = strides[1], t.q_n = strides[2], t.k_b = strides[3], t.k_h = strides[4], t.k_n = strides[5];
    t.v_b = strides[6], t.v_h = strides[7], t.v_n = strides[8];
    if (g) t.g_b = strides[9], t.g_h = strides[10], t.g_n = strides[11];
    t.heads = heads, t.kv_heads = kv_heads, t.queries = queries, t.keys = keys, t.width = width, t.scale = scale, t.causal = causal;
    const double cost = (double)b * heads * queries * keys * width * (g ? 3 : 1);
    return run(PADDED[g != NULL][widest(most)][!!wide], &t, b * kv_heads, cost, 1e6, threads);
}

/* The greedy continuation of the first hypothesis, the `others` most probable of the rest, and the ends that are no less probable than these */
EXPORT int regard_continuations(int wide, int most, i64 threads, i64 rows_, i64 n, i64 k, i64 eos, i64 others, int greedy, const void *log_p,
                                const i64 *token, const void *end, const void *log_prob, void *ends, void *going, i64 *slot, i64 *next,
                                void *margin, i64 *seen) {
    candidates t = {0};
    (void)most, (void)threads;
    t.log_p = log_p, t.token = token, t.end = end, t.log_prob = log_prob, t.ends = ends, t.going = going, t.slot = slot, t.next = next;
    t.margin = margin, t.seen = seen, t.n = n, t.k = k, t.eos = eos, t.others = others, t.greedy = greedy;
    return wide ? continuations_1_0(&t, 0, rows_) : continuations_0_0(&t, 0, rows_);
}

/* Python's build tools on Windows export this name from every extension; the library is never imported as a module. */
EXPORT void *PyInit__native(void) { return NULL; }
