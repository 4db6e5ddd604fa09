// Layer normalisation of rows in float32, one warp each, and its backward.

#define WARPS 4

template <class T, int N>
static __device__ __forceinline__ void forward(
    const float *x, const float *gain, const float *bias, typename T::Raw *y, float *means, float *inverses, u32 rows,
    u32 features, float epsilon
) {
    u32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += u64(row) * features;
    y += u64(row) * features;
    float count = __uint2float_rn(features), sum = 0.0f;
    for (u32 f = lane * N; f < features; f += 32 * N) {
        float values[N];
        load<F32, N>(values, x + f);
#pragma unroll
        for (int i = 0; i < N; i++) sum += values[i];
    }
    float mean = warp_sum(sum) / count, squares = 0.0f;
    for (u32 f = lane * N; f < features; f += 32 * N) {
        float values[N];
        load<F32, N>(values, x + f);
#pragma unroll
        for (int i = 0; i < N; i++) squares += (values[i] - mean) * (values[i] - mean);
    }
    float inverse = 1.0f / sqrtf(warp_sum(squares) / count + epsilon);
    for (u32 f = lane * N; f < features; f += 32 * N) {
        float values[N], gains[N], biases[N];
        load<F32, N>(values, x + f);
        load<F32, N>(gains, gain + f);
        load<F32, N>(biases, bias + f);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = (values[i] - mean) * inverse * gains[i] + biases[i];
        store<T, N>(y + f, values);
    }
    if (lane == 0) {
        means[row] = mean;
        inverses[row] = inverse;
    }
}

template <class T, int N>
static __device__ __forceinline__ void backward(
    const float *x, const typename T::Raw *dy, const float *gain, const float *means, const float *inverses, float *dx,
    u32 rows, u32 features
) {
    u32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += u64(row) * features;
    dy += u64(row) * features;
    dx += u64(row) * features;
    float mean = means[row], inverse = inverses[row], count = __uint2float_rn(features);
    float sum = 0.0f, along = 0.0f;
    for (u32 f = lane * N; f < features; f += 32 * N) {
        float values[N], slopes[N], gains[N];
        load<F32, N>(values, x + f);
        load<T, N>(slopes, dy + f);
        load<F32, N>(gains, gain + f);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float slope = slopes[i] * gains[i];
            sum += slope;
            along += slope * ((values[i] - mean) * inverse);
        }
    }
    sum = warp_sum(sum) / count;
    along = warp_sum(along) / count;
    for (u32 f = lane * N; f < features; f += 32 * N) {
        float values[N], slopes[N], gains[N];
        load<F32, N>(values, x + f);
        load<T, N>(slopes, dy + f);
        load<F32, N>(gains, gain + f);
#pragma unroll
        for (int i = 0; i < N; i++)
            values[i] = inverse * (slopes[i] * gains[i] - sum - (values[i] - mean) * inverse * along);
        store<F32, N>(dx + f, values);
    }
}

// The sum of eight parts per column, in their order; to be called by all of a block of 32 by 8.
static __device__ __forceinline__ float down(float value, float (*parts)[32]) {
    __syncthreads();
    parts[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += parts[i][threadIdx.x];
    return sum;
}

// What some of the rows add to the gradients of gain and bias: `parts` is [2, stretches, features].
template <class T>
static __device__ __forceinline__ void stretch(
    const float *x, const typename T::Raw *dy, const float *means, const float *inverses, float *parts, u32 rows,
    u32 features, u32 tall
) {
    __shared__ float shared[8][32];
    u32 column = blockIdx.x * 32 + threadIdx.x, first = blockIdx.y * tall;
    u32 end = rows - first < tall ? rows : first + tall;
    float gain = 0.0f, bias = 0.0f;
    if (column < features)
        for (u32 row = first + threadIdx.y; row < end; row += 8) {
            u64 place = u64(row) * features + column;
            float slope = T::get(dy[place]);
            gain += slope * ((x[place] - means[row]) * inverses[row]);
            bias += slope;
        }
    gain = down(gain, shared);
    bias = down(bias, shared);
    if (threadIdx.y == 0 && column < features) {
        parts[u64(blockIdx.y) * features + column] = gain;
        parts[u64(gridDim.y + blockIdx.y) * features + column] = bias;
    }
}

// Both gradients from their parts: the second row of blocks has those of the bias.
extern "C" __global__ void __launch_bounds__(256) norm_total(
    const float *parts, float *gain, float *bias, u32 stretches, u32 features
) {
    __shared__ float shared[8][32];
    u32 column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (column < features)
        for (u32 part = threadIdx.y; part < stretches; part += 8)
            sum += parts[u64(blockIdx.y * stretches + part) * features + column];
    sum = down(sum, shared);
    if (threadIdx.y == 0 && column < features) (blockIdx.y == 0 ? gain : bias)[column] = sum;
}

#define NORM(END, T) \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) norm_##END( \
        const float *x, const float *gain, const float *bias, T::Raw *y, float *means, float *inverses, u32 rows, \
        u32 features, float epsilon, u32 aligned \
    ) { \
        if (aligned) forward<T, 4>(x, gain, bias, y, means, inverses, rows, features, epsilon); \
        else forward<T, 1>(x, gain, bias, y, means, inverses, rows, features, epsilon); \
    } \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) norm_back_##END( \
        const float *x, const T::Raw *dy, const float *gain, const float *means, const float *inverses, float *dx, \
        u32 rows, u32 features, u32 aligned \
    ) { \
        if (aligned) backward<T, 4>(x, dy, gain, means, inverses, dx, rows, features); \
        else backward<T, 1>(x, dy, gain, means, inverses, dx, rows, features); \
    } \
    extern "C" __global__ void __launch_bounds__(256) norm_parts_##END( \
        const float *x, const T::Raw *dy, const float *means, const float *inverses, float *parts, u32 rows, \
        u32 features, u32 tall \
    ) { stretch<T>(x, dy, means, inverses, parts, rows, features, tall); }

NORM(f32, F32)
NORM(f16, F16)
NORM(bf16, Bf16)
