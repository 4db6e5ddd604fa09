// Kernels over many tensors at once: the sum of the squares of gradients, a factor for all of them, and copies.

#define ENTRIES 150
#define WORDS 3
// Values that a block goes through.
#define CHUNK 16384u

// For each gradient where it is, where its new values go, its length and the first of its blocks.
struct Table {
    u64 words[ENTRIES * WORDS];
};

struct Part {
    const float *from;
    float *to;
    u32 first;
    u32 end;
    bool aligned;
};

static __device__ __forceinline__ Part part(const Table &table, u32 entries) {
    // The last entry whose first block is not behind this one.
    u32 low = 0, high = entries;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (u32(table.words[middle * WORDS + 2] >> 32) <= blockIdx.x) low = middle; else high = middle;
    }
    const u64 *words = table.words + low * WORDS;
    u32 len = u32(words[2]), first = (blockIdx.x - u32(words[2] >> 32)) * CHUNK;
    u32 end = len - first < CHUNK ? len : first + CHUNK;
    return {(const float *)words[0], (float *)words[1], first, end, ((words[0] | words[1]) & 15) == 0};
}

// The sum over a block, always in the same order; the first thread has it.
template <int THREADS>
static __device__ __forceinline__ double block_sum(double value) {
    __shared__ double values[THREADS];
    values[threadIdx.x] = value;
    for (int apart = THREADS / 2; apart > 0; apart /= 2) {
        __syncthreads();
        if (threadIdx.x < apart) values[threadIdx.x] += values[threadIdx.x + apart];
    }
    return values[0];
}

extern "C" __global__ void __launch_bounds__(256) squares(const __grid_constant__ Table table, u32 entries, double *sums) {
    Part p = part(table, entries);
    double sum = 0.0;
    u32 packed = p.aligned ? (p.end - p.first) / 4 : 0;
    for (u32 i = threadIdx.x; i < packed; i += 256) {
        float values[4];
        load<F32, 4>(values, p.from + p.first + 4 * i);
#pragma unroll
        for (int k = 0; k < 4; k++) sum += double(values[k]) * double(values[k]);
    }
    for (u32 i = p.first + 4 * packed + threadIdx.x; i < p.end; i += 256) sum += double(p.from[i]) * double(p.from[i]);
    sum = block_sum<256>(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(1024) squares_end(const double *sums, u32 count, float *total) {
    double sum = 0.0;
    for (u32 i = threadIdx.x; i < count; i += 1024) sum += sums[i];
    sum = block_sum<1024>(sum);
    if (threadIdx.x == 0) total[0] = float(sum);
}

// By `factor`, or where there is a sum of squares by what brings its root down to `factor`.
extern "C" __global__ void __launch_bounds__(256) multiplied(
    const __grid_constant__ Table table, u32 entries, const float *total, float factor
) {
    Part p = part(table, entries);
    if (total) {
        float share = factor / (sqrtf(total[0]) + 1e-6f);
        // What is no number stays none.
        factor = share >= 1.0f ? 1.0f : share;
    }
    u32 packed = p.aligned ? (p.end - p.first) / 4 : 0;
    for (u32 i = threadIdx.x; i < packed; i += 256) {
        float values[4];
        load<F32, 4>(values, p.from + p.first + 4 * i);
#pragma unroll
        for (int k = 0; k < 4; k++) values[k] *= factor;
        store<F32, 4>(p.to + p.first + 4 * i, values);
    }
    for (u32 i = p.first + 4 * packed + threadIdx.x; i < p.end; i += 256) p.to[i] = p.from[i] * factor;
}

// Words as they are, whatever they stand for.
extern "C" __global__ void __launch_bounds__(256) copied(const __grid_constant__ Table table, u32 entries) {
    Part p = part(table, entries);
    const u32 *from = (const u32 *)p.from;
    u32 *to = (u32 *)p.to;
    u32 packed = p.aligned ? (p.end - p.first) / 4 : 0;
    for (u32 i = threadIdx.x; i < packed; i += 256)
        *(uint4 *)(to + p.first + 4 * i) = *(const uint4 *)(from + p.first + 4 * i);
    for (u32 i = p.first + 4 * packed + threadIdx.x; i < p.end; i += 256) to[i] = from[i];
}
