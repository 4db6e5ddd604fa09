// Many tensors into one bucket and out of it again.

#define ENTRIES 120
#define WORDS 4
// Values that a block copies.
#define CHUNK 16384u

// For each tensor where it is read, where it is written, its values and the first of its blocks, and the values that are written: zeros are behind its own.
struct Table {
    u64 words[ENTRIES * WORDS];
};

static __device__ __forceinline__ float one(const float *from, u32 i, u32 len, float factor) {
    return i < len ? from[i] * factor : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) bucket(const __grid_constant__ Table table, u32 entries, float factor) {
    // The last entry whose first block is not behind this one.
    u32 low = 0, high = entries;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (u32(table.words[middle * WORDS + 2] >> 32) <= blockIdx.x) low = middle; else high = middle;
    }
    const u64 *words = table.words + low * WORDS;
    const float *from = (const float *)words[0];
    float *to = (float *)words[1];
    u32 len = u32(words[2]), first = (blockIdx.x - u32(words[2] >> 32)) * CHUNK, room = u32(words[3]);
    u32 end = room - first < CHUNK ? room : first + CHUNK;
    // Packs end where there is no whole one of the tensor's own values any more.
    u32 whole = end < len ? end : len;
    bool aligned = ((words[0] | words[1]) & 15) == 0;
    u32 packed = aligned && whole > first ? (whole - first) / 4 : 0;
    for (u32 i = threadIdx.x; i < packed; i += 256) {
        float values[4];
        load<F32, 4>(values, from + first + 4 * i);
#pragma unroll
        for (int k = 0; k < 4; k++) values[k] *= factor;
        store<F32, 4>(to + first + 4 * i, values);
    }
    for (u32 i = first + 4 * packed + threadIdx.x; i < end; i += 256) to[i] = one(from, i, len, factor);
}

// Values of this card's slice of a bucket, to which those of the other ranks are added that lie one slice behind the other: from the first rank to the last. Their number is a multiple of four.
extern "C" __global__ void __launch_bounds__(256) added(float *own, const float *others, u32 len, u32 stride, u32 rank, u32 ranks) {
    u32 begin = 4 * (blockIdx.x * 256 + threadIdx.x);
    if (begin >= len) return;
    float sums[4];
    for (u32 other = 0; other < ranks; other++) {
        const float *from = other == rank ? own : others + u64(other < rank ? other : other - 1) * stride;
        float values[4];
        load<F32, 4>(values, from + begin);
#pragma unroll
        for (int k = 0; k < 4; k++) sums[k] = other == 0 ? values[k] : sums[k] + values[k];
    }
    store<F32, 4>(own + begin, sums);
}
