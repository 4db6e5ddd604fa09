// One step of an optimiser over many parameters, with the arithmetic of tensor operations: one rounding after the other, nothing contracted.

#define ENTRIES 48
#define WORDS 9
// Values that a block updates.
#define CHUNK 8192u

struct Table {
    u64 words[ENTRIES * WORDS];
};

struct Constants {
    u32 rule;
    u32 entries;
    float gradient;
    float rate;
    float keep1;
    float beta2;
    float keep2;
    float root;
    float epsilon;
};

static __device__ __forceinline__ float before(float &p, float g, const Constants &c, u32 decay, float amount) {
    // A factor of one changes nothing, but an operation that was not asked for is none of the arithmetic either.
    if (c.gradient != 1.0f) g = g * c.gradient;
    if (decay == 1) g = g + p * amount;
    if (decay == 2) p = p * amount;
    return g;
}

static __device__ __forceinline__ void one(float &p, float g, float &m, float &v, const Constants &c) {
    if (c.rule == 0) {
        p = p - g * c.rate;
    } else if (c.rule == 1) {
        m = m * c.keep1 + g;
        p = p - m * c.rate;
    } else {
        m = m + (g - m) * c.keep1;
        v = v * c.beta2 + g * g * c.keep2;
        p = p - m / (sqrtf(v) / c.root + c.epsilon) * c.rate;
    }
}

template <int N>
static __device__ __forceinline__ void some(
    u32 i, const float *p, float *p_new, const float *g, const float *m, float *m_new, const float *v, float *v_new,
    const Constants &c, u32 decay, float amount
) {
    float ps[N], gs[N], ms[N] = {}, vs[N] = {};
    load<F32, N>(ps, p + i);
    load<F32, N>(gs, g + i);
    if (c.rule >= 1) load<F32, N>(ms, m + i);
    if (c.rule >= 2) load<F32, N>(vs, v + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
        float gradient = before(ps[k], gs[k], c, decay, amount);
        one(ps[k], gradient, ms[k], vs[k], c);
    }
    store<F32, N>(p_new + i, ps);
    if (c.rule >= 1) store<F32, N>(m_new + i, ms);
    if (c.rule >= 2) store<F32, N>(v_new + i, vs);
}

extern "C" __global__ void __launch_bounds__(256) update(const __grid_constant__ Table table, const Constants c) {
    // The last entry whose first block is not behind this one.
    u32 low = 0, high = c.entries;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (u32(table.words[middle * WORDS + 7] >> 32) <= blockIdx.x) low = middle; else high = middle;
    }
    const u64 *words = table.words + low * WORDS;
    const float *p = (const float *)words[0], *g = (const float *)words[2];
    const float *m = (const float *)words[3], *v = (const float *)words[5];
    float *p_new = (float *)words[1], *m_new = (float *)words[4], *v_new = (float *)words[6];
    u32 len = u32(words[7]), first = (blockIdx.x - u32(words[7] >> 32)) * CHUNK;
    u32 decay = u32(words[8] >> 32);
    float amount = __uint_as_float(u32(words[8]));
    u32 end = len - first < CHUNK ? len : first + CHUNK;
    bool aligned = ((words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6]) & 15) == 0;
    u32 packed = aligned ? first + (end - first) / 4 * 4 : first;
    for (u32 i = first + threadIdx.x * 4; i < packed; i += blockDim.x * 4)
        some<4>(i, p, p_new, g, m, m_new, v, v_new, c, decay, amount);
    for (u32 i = packed + threadIdx.x; i < end; i += blockDim.x)
        some<1>(i, p, p_new, g, m, m_new, v, v_new, c, decay, amount);
}
