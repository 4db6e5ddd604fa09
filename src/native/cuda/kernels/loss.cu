// The cross-entropy of rows of scores with the right classes, and its gradient if there is a place for it, which may be that of the scores.

#define THREADS 1024

template <class T, int N>
static __device__ __forceinline__ void possible(float (&values)[N], const typename T::Raw *x, u32 column, u32 classes) {
    load<T, N>(values, x + column);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (column + i >= classes) values[i] = least();
}

template <class T, int N>
static __device__ __forceinline__ void row(
    const typename T::Raw *x, const int *targets, typename T::Raw *gradient, float *losses, const float *upstream,
    u32 columns, u32 classes, float factor
) {
    __shared__ float mosts[THREADS / 32], sums[THREADS / 32];
    x += u64(blockIdx.x) * columns;
    if (gradient) gradient += u64(blockIdx.x) * columns;
    int target = targets[blockIdx.x];
    if (target < 0 || u32(target) >= classes) {
        float nothing[N] = {};
        for (u32 column = threadIdx.x * N; gradient && column < columns; column += THREADS * N)
            store<T, N>(gradient + column, nothing);
        if (threadIdx.x == 0) losses[blockIdx.x] = 0.0f;
        return;
    }
    // Read before anything is written in its place.
    float right = T::get(x[target]);
    Soft soft = {least(), 0.0f};
    for (u32 column = threadIdx.x * N; column < classes; column += THREADS * N) {
        float values[N];
        possible<T, N>(values, x, column, classes);
        soft.take<T, N>(values);
    }
    soft.over_warp<T>();
    if ((threadIdx.x & 31) == 0) {
        mosts[threadIdx.x >> 5] = soft.most;
        sums[threadIdx.x >> 5] = soft.sum;
    }
    __syncthreads();
    soft.most = mosts[threadIdx.x & 31];
    soft.sum = sums[threadIdx.x & 31];
    soft.over_warp<T>();
    if (threadIdx.x == 0) losses[blockIdx.x] = logf(soft.sum) - (right - soft.most);
    if (!gradient) return;
    if (upstream) factor *= *upstream;
    float share = 1.0f / soft.sum;
    for (u32 column = threadIdx.x * N; column < columns; column += THREADS * N) {
        float values[N];
        possible<T, N>(values, x, column, classes);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float p = T::power(values[i] - soft.most) * share;
            if (column + i == u32(target)) p -= 1.0f;
            values[i] = column + i < classes ? p * factor : 0.0f;
        }
        store<T, N>(gradient + column, values);
    }
}

#define ROW(NAME, T) \
    extern "C" __global__ void __launch_bounds__(THREADS) NAME( \
        const T::Raw *x, const int *targets, T::Raw *gradient, float *losses, const float *upstream, u32 columns, \
        u32 classes, float factor, u32 aligned \
    ) { \
        if (aligned) row<T, 16 / sizeof(T::Raw)>(x, targets, gradient, losses, upstream, columns, classes, factor); \
        else row<T, 1>(x, targets, gradient, losses, upstream, columns, classes, factor); \
    }

ROW(cross_entropy_f32, F32)
ROW(cross_entropy_f16, F16)
ROW(cross_entropy_bf16, Bf16)

// One block adds up all rows, in the same order every time.
extern "C" __global__ void __launch_bounds__(THREADS) total(const float *losses, float *sum, u32 n) {
    __shared__ double parts[THREADS];
    double part = 0.0;
    for (u32 i = threadIdx.x; i < n; i += THREADS) part += losses[i];
    parts[threadIdx.x] = part;
    for (u32 apart = THREADS / 2; apart > 0; apart >>= 1) {
        __syncthreads();
        if (threadIdx.x < apart) parts[threadIdx.x] += parts[threadIdx.x + apart];
    }
    if (threadIdx.x == 0) *sum = float(parts[0]);
}
