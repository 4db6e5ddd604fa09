// The cross-entropy of rows of scores with the right classes, and its gradient, from the largest score of each row and the sum of its powers.

#define THREADS 256
// Packs that a thread reads at a time.
#define AHEAD 4

template <class T, int N>
static __device__ __forceinline__ void fetch(
    Pack<T, N> (&packs)[AHEAD], const typename T::Raw *x, u32 column, u32 columns
) {
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        if (column + u * THREADS * N < columns) packs[u] = *reinterpret_cast<const Pack<T, N> *>(x + column + u * THREADS * N);
}

// The loss of a row; and for the backward `mosts` and `sums`.
template <class T, int N>
static __device__ __forceinline__ void row(
    const typename T::Raw *x, const int *targets, float *losses, float *mosts, float *sums, u32 columns, u32 classes
) {
    __shared__ float most_of[THREADS / 32], sum_of[THREADS / 32];
    x += u64(blockIdx.x) * columns;
    int target = targets[blockIdx.x];
    if (target < 0 || u32(target) >= classes) {
        if (threadIdx.x == 0) losses[blockIdx.x] = 0.0f;
        return;
    }
    float right = T::get(x[target]);
    Soft soft = {least(), 0.0f};
    for (u32 column = threadIdx.x * N; column < classes; column += THREADS * N * AHEAD) {
        Pack<T, N> packs[AHEAD];
        fetch(packs, x, column, classes);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            u32 first = column + u * THREADS * N;
            if (first >= classes) break;
            float values[N];
#pragma unroll
            for (int i = 0; i < N; i++) values[i] = first + i < classes ? T::get(packs[u].raw[i]) : least();
            soft.take<T, N>(values);
        }
    }
    soft.over_warp<T>();
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) {
        most_of[warp] = soft.most;
        sum_of[warp] = soft.sum;
    }
    __syncthreads();
    soft = {lane < THREADS / 32 ? most_of[lane] : least(), lane < THREADS / 32 ? sum_of[lane] : 0.0f};
    soft.over_warp<T>();
    if (threadIdx.x != 0) return;
    losses[blockIdx.x] = logf(soft.sum) - (right - soft.most);
    mosts[blockIdx.x] = soft.most;
    sums[blockIdx.x] = soft.sum;
}

// The gradient of a row, whose place may be that of the scores.
template <class T, int N>
static __device__ __forceinline__ void row_back(
    const typename T::Raw *x, const int *targets, const float *mosts, const float *sums, const float *upstream,
    typename T::Raw *gradient, u32 columns, u32 classes, float factor
) {
    x += u64(blockIdx.x) * columns;
    gradient += u64(blockIdx.x) * columns;
    int target = targets[blockIdx.x];
    bool counts = target >= 0 && u32(target) < classes;
    float most = counts ? mosts[blockIdx.x] : 0.0f, share = counts ? 1.0f / sums[blockIdx.x] : 0.0f;
    factor *= *upstream;
    for (u32 column = threadIdx.x * N; column < columns; column += THREADS * N * AHEAD) {
        Pack<T, N> packs[AHEAD];
        if (counts) fetch(packs, x, column, columns);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            u32 first = column + u * THREADS * N;
            if (first >= columns) break;
            float values[N];
#pragma unroll
            for (int i = 0; i < N; i++) {
                float p = T::power(T::get(packs[u].raw[i]) - most) * share;
                if (first + i == u32(target)) p -= 1.0f;
                values[i] = counts && first + i < classes ? p * factor : 0.0f;
            }
            store<T, N>(gradient + first, values);
        }
    }
}

#define ROW(END, T) \
    extern "C" __global__ void __launch_bounds__(THREADS) cross_entropy_##END( \
        const T::Raw *x, const int *targets, float *losses, float *mosts, float *sums, u32 columns, u32 classes, \
        u32 aligned \
    ) { \
        if (aligned) row<T, 16 / sizeof(T::Raw)>(x, targets, losses, mosts, sums, columns, classes); \
        else row<T, 1>(x, targets, losses, mosts, sums, columns, classes); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS) cross_entropy_back_##END( \
        const T::Raw *x, const int *targets, const float *mosts, const float *sums, const float *upstream, \
        T::Raw *gradient, u32 columns, u32 classes, u32 aligned, float factor \
    ) { \
        if (aligned) \
            row_back<T, 16 / sizeof(T::Raw)>(x, targets, mosts, sums, upstream, gradient, columns, classes, factor); \
        else row_back<T, 1>(x, targets, mosts, sums, upstream, gradient, columns, classes, factor); \
    }

ROW(f32, F32)
ROW(f16, F16)
ROW(bf16, Bf16)

// One block adds up all rows, in the same order every time.
extern "C" __global__ void __launch_bounds__(1024) total(const float *losses, float *sum, u32 n) {
    __shared__ double parts[1024];
    double part = 0.0;
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) part += losses[i];
    parts[threadIdx.x] = part;
    for (u32 apart = blockDim.x / 2; apart > 0; apart >>= 1) {
        __syncthreads();
        if (threadIdx.x < apart) parts[threadIdx.x] += parts[threadIdx.x + apart];
    }
    if (threadIdx.x == 0) *sum = float(parts[0]);
}
