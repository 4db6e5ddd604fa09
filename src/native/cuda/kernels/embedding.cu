// The gradient of a table of vectors: to each row the gradients of its occurrences are added in their order.

#define THREADS 256u
// Ids that each thread looks at before the block adds up what was found.
#define IDS 16u
#define TILE (THREADS * IDS)
#define NONE 0xffffffffu

// How many of the threads before this one said yes how often; `all` is the sum. To be called by all of the block.
static __device__ __forceinline__ u32 places(u32 count, u32 &all, u32 *totals) {
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, upto = count;
#pragma unroll
    for (u32 apart = 1; apart < 32; apart <<= 1) {
        u32 other = __shfl_up_sync(0xffffffffu, upto, apart);
        if (lane >= apart) upto += other;
    }
    __syncthreads();
    if (lane == 31) totals[warp] = upto;
    __syncthreads();
    u32 before = 0;
    all = 0;
#pragma unroll
    for (u32 i = 0; i < THREADS / 32; i++) {
        if (i < warp) before += totals[i];
        all += totals[i];
    }
    return before + upto - count;
}

template <int N>
static __device__ __forceinline__ void add(
    const float *dy, float *row, u32 features, const u32 *places, u32 count
) {
    for (u32 f = threadIdx.x * N; f < features; f += THREADS * N) {
        float sum[N];
        load<F32, N>(sum, row + f);
        u32 k = 0;
        for (; k + 8 <= count; k += 8) {
            float values[8][N];
#pragma unroll
            for (int i = 0; i < 8; i++) load<F32, N>(values[i], dy + u64(places[k + i]) * features + f);
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int part = 0; part < N; part++) sum[part] += values[i][part];
        }
        for (; k < count; k++) {
            float values[N];
            load<F32, N>(values, dy + u64(places[k]) * features + f);
#pragma unroll
            for (int part = 0; part < N; part++) sum[part] += values[part];
        }
        store<F32, N>(row + f, sum);
    }
}

// A block has every gridDim.x-th row, 32 at most: frequent tokens, which often have neighbouring ids, are spread over the blocks.
extern "C" __global__ void __launch_bounds__(THREADS) embedding_back(
    const int *ids, const float *dy, float *table, u32 n, u32 rows, u32 features, u32 aligned
) {
    __shared__ u32 found[TILE], mine[TILE];
    __shared__ u32 totals[THREADS / 32];
    __shared__ u32 present;
    u64 apart = u64(gridDim.x) * features;
    float *own = table + u64(blockIdx.x) * features;
    for (u32 row = blockIdx.x, at = 0; row < rows; row += gridDim.x, at++)
        for (u32 i = threadIdx.x; i < features; i += THREADS) own[at * apart + i] = 0.0f;
    for (u32 start = 0; start < n; start += TILE) {
        if (threadIdx.x == 0) present = 0;
        u32 from = start + threadIdx.x * IDS, local[IDS], hits = 0, seen = 0;
#pragma unroll
        for (u32 i = 0; i < IDS; i++) {
            u32 id = from + i < n ? u32(ids[from + i]) : rows;
            bool hit = id < rows && id % gridDim.x == blockIdx.x;
            local[i] = hit ? id / gridDim.x : NONE;
            if (hit) {
                hits++;
                seen |= 1u << local[i];
            }
        }
        u32 all, place = places(hits, all, totals);
        if (all == 0) continue;
        if (seen) atomicOr(&present, seen);
#pragma unroll
        for (u32 i = 0; i < IDS; i++)
            if (local[i] != NONE) found[place++] = (threadIdx.x * IDS + i) << 5 | local[i];
        __syncthreads();
        for (u32 left = present; left; left &= left - 1) {
            u32 row = __ffs(left) - 1, count = 0;
            for (u32 base = 0; base < all; base += THREADS) {
                u32 entry = base + threadIdx.x < all ? found[base + threadIdx.x] : 0;
                u32 hit = base + threadIdx.x < all && (entry & 31u) == row, more;
                u32 place = places(hit, more, totals);
                if (hit) mine[count + place] = start + (entry >> 5);
                count += more;
            }
            __syncthreads();
            if (aligned) add<4>(dy, own + row * apart, features, mine, count);
            else add<1>(dy, own + row * apart, features, mine, count);
            __syncthreads();
        }
    }
}
