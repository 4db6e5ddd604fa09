// What goes with the products of affine maps: weights in the number format of the products, side by side, and sums of gradients over rows.

// Up to three matrices of float32 side by side, rounded, each `rows` by `each`; zeros below them and beside them.
template <class T, int N>
static __device__ __forceinline__ void lay(
    const float *a, const float *b, const float *c, typename T::Raw *to, u32 parts, u32 rows, u32 each, u32 high, u32 wide
) {
    u32 column = (blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (column >= wide) return;
    u32 part = column / each;
    const float *from = (part == 0 ? a : part == 1 ? b : c) + (column - part * each);
    for (u32 row = blockIdx.y * blockDim.y + threadIdx.y; row < high; row += gridDim.y * blockDim.y) {
        float values[N] = {};
        if (part < parts && row < rows) load<F32, N>(values, from + u64(row) * each);
        store<T, N>(to + u64(row) * wide + column, values);
    }
}

// The sums over some of the rows, in each block those of 32·N columns: `parts` is [stretches, columns].
template <class T, int N>
static __device__ __forceinline__ void stretch(
    const typename T::Raw *x, float *parts, u32 rows, u32 columns, u32 tall
) {
    __shared__ float shared[8][32 * N];
    u32 column = (blockIdx.x * 32 + threadIdx.x) * N, first = blockIdx.y * tall;
    u32 end = rows - first < tall ? rows : first + tall;
    float sums[N] = {};
    if (column < columns)
        for (u32 row = first + threadIdx.y; row < end; row += 8) {
            float values[N];
            load<T, N>(values, x + u64(row) * columns + column);
#pragma unroll
            for (int i = 0; i < N; i++) sums[i] += values[i];
        }
#pragma unroll
    for (int i = 0; i < N; i++) shared[threadIdx.y][i * 32 + threadIdx.x] = sums[i];
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float sum = 0.0f;
        for (int row = 0; row < 8; row++) sum += shared[row][i * 32 + threadIdx.x];
        sums[i] = sum;
    }
    store<F32, N>(parts + u64(blockIdx.y) * columns + column, sums);
}

// The sums of the parts of each column, in their order.
extern "C" __global__ void __launch_bounds__(256) sums_total(const float *parts, float *sums, u32 stretches, u32 columns) {
    __shared__ float shared[8][32];
    u32 column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (column < columns)
        for (u32 part = threadIdx.y; part < stretches; part += 8) sum += parts[u64(part) * columns + column];
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    sum = 0.0f;
    for (int row = 0; row < 8; row++) sum += shared[row][threadIdx.x];
    sums[column] = sum;
}

#define AFFINE(END, T) \
    extern "C" __global__ void __launch_bounds__(256) lay_##END( \
        const float *a, const float *b, const float *c, T::Raw *to, u32 parts, u32 rows, u32 each, u32 high, u32 wide, \
        u32 aligned \
    ) { \
        if (aligned) lay<T, 4>(a, b, c, to, parts, rows, each, high, wide); \
        else lay<T, 1>(a, b, c, to, parts, rows, each, high, wide); \
    } \
    extern "C" __global__ void __launch_bounds__(256) sums_##END( \
        const T::Raw *x, float *parts, u32 rows, u32 columns, u32 tall, u32 packed \
    ) { \
        if (packed) stretch<T, 16 / sizeof(T::Raw)>(x, parts, rows, columns, tall); \
        else stretch<T, 1>(x, parts, rows, columns, tall); \
    }

AFFINE(f32, F32)
AFFINE(f16, F16)
AFFINE(bf16, Bf16)
