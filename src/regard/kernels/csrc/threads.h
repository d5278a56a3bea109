/* Detection of the instruction set, and distribution of work over threads. */

/* The level that processor and operating system both support. Queried directly, because not every compiler's runtime library has
 * __builtin_cpu_supports. */
static int supported(void) {
#if X86
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const int fma = c >> 12 & 1, saves = c >> 27 & 1;
    if (!fma || !saves || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!(b >> 5 & 1) || (low & 0x06) != 0x06) return 0;
    return (b >> 16 & 1) && (low & 0xe6) == 0xe6 ? 2 : 1;
#else
    return 0;
#endif
}

static int widest(int most) {
    /* the query traps out of a virtual machine, so it is made once per process; two threads that query at once write the same answer */
    static volatile int known = -1;
    int level = known;
    if (level < 0) known = level = supported();
    return most < level ? (most < 0 ? 0 : most) : level;
}

#if X86
/* Whether the processor multiplies vectors of bytes (VNNI), beside AVX-512. */
static int has_vnni(void) {
    static volatile int known = -1;
    int has = known;
    if (has < 0) {
        unsigned a, b, c, d;
        has = supported() == 2 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 30 & 1) && (b >> 31 & 1) && (c >> 11 & 1);
        known = has;
    }
    return has;
}
#endif

/* The sums of 8-bit products for instruction sets up to `most`. */
static tile8 integer_tile(int most) {
#if X86
    const int level = widest(most);
    if (level == 2 && has_vnni()) return tile8_vnni;
    if (level) return tile8_avx2;
#endif
    (void)most;
    return tile8_plain;
}

#if THREADS
typedef struct {
    kernel work;
    const void *context;
    i64 begin, end;
    int failed;
} share;

static void *run_share(void *p) {
    share *s = p;
    s->failed = s->work(s->context, s->begin, s->end);
    return NULL;
}
#endif

/* Runs items on at most `threads` threads; a thread is worth starting for about a tenth of a millisecond of work: `grain` units of cost. */
static int run(kernel work, const void *context, i64 items, double cost, double grain, i64 threads) {
    if (items <= 0) return 0;
#if THREADS
    enum { MOST = 64 };
    i64 count = threads < MOST ? threads : MOST;
    if (count > items) count = items;
    if (count > cost / grain) count = (i64)(cost / grain);
    if (count > 1) {
        share shares[MOST];
        pthread_t ids[MOST];
        unsigned char made[MOST] = {0};
        int failed = 0;
        for (i64 i = 0; i < count; i++) {
            share s = {work, context, items * i / count, items * (i + 1) / count, 0};
            shares[i] = s;
            if (i) made[i] = pthread_create(&ids[i], NULL, run_share, &shares[i]) == 0;
        }
        for (i64 i = 0; i < count; i++)
            if (!made[i]) run_share(&shares[i]);
        for (i64 i = 0; i < count; i++) {
            if (made[i]) pthread_join(ids[i], NULL);
            failed |= shares[i].failed;
        }
        return failed;
    }
#else
    (void)cost, (void)grain, (void)threads;
#endif
    return work(context, 0, items);
}
