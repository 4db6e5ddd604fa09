// The softmax of attention and its dropout, one warp for each row of scores, and its backward.

#define WARPS 8

struct Look {
    u32 rows;
    u32 width;
    u32 causal;
    float scale;
    u32 drops;
    u32 key;
    float threshold;
    float factor;
};

// The scores as the softmax takes them; nothing is seen of what is behind the end.
template <class T, int N>
static __device__ __forceinline__ void scores(
    float (&values)[N], const typename T::Raw *x, u32 column, u32 end, float scale
) {
    load<T, N>(values, x + column);
#pragma unroll
    for (int i = 0; i < N; i++) {
        values[i] *= scale;
        if (column + i >= end) values[i] = least();
    }
}

static __device__ __forceinline__ float share_kept(const Look &look, u32 row, u32 column) {
    return look.drops ? kept(row * look.width + column, look.key, look.threshold, look.factor) : 1.0f;
}

template <class T, class U, int N>
static __device__ __forceinline__ void attend(
    const typename T::Raw *x, typename U::Raw *y, float2 *rests, const Look &look
) {
    u32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, width = look.width;
    if (row >= look.rows) return;
    x += u64(row) * width;
    y += u64(row) * width;
    u32 end = look.causal ? row % width + 1 : width;
    Soft soft = {least(), 0.0f};
    for (u32 column = lane * N; column < end; column += 32 * N) {
        float values[N];
        scores<T, N>(values, x, column, end, look.scale);
        soft.take<F32, N>(values);
    }
    soft.over_warp<F32>();
    float share = 1.0f / soft.sum;
    for (u32 column = lane * N; column < width; column += 32 * N) {
        float values[N];
        scores<T, N>(values, x, column, end, look.scale);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float p = column + i < end ? expf(values[i] - soft.most) * share : 0.0f;
            values[i] = p * share_kept(look, row, column + i);
        }
        store<U, N>(y + column, values);
    }
    if (lane == 0) rests[row] = make_float2(soft.most, share);
}

// The gradient of the scores; it may take the place of the scores or of the gradient that comes in.
template <class T, class U, int N>
static __device__ __forceinline__ void attend_back(
    const typename T::Raw *x, const typename U::Raw *dy, const float2 *rests, typename T::Raw *dx, const Look &look
) {
    u32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, width = look.width;
    if (row >= look.rows) return;
    x += u64(row) * width;
    dy += u64(row) * width;
    dx += u64(row) * width;
    u32 end = look.causal ? row % width + 1 : width;
    float2 rest = rests[row];
    float along = 0.0f;
    for (u32 column = lane * N; column < end; column += 32 * N) {
        float values[N], slopes[N];
        scores<T, N>(values, x, column, end, look.scale);
        load<U, N>(slopes, dy + column);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (column + i < end)
                along += slopes[i] * share_kept(look, row, column + i) * (expf(values[i] - rest.x) * rest.y);
    }
    along = warp_sum(along);
    for (u32 column = lane * N; column < width; column += 32 * N) {
        float values[N], slopes[N];
        scores<T, N>(values, x, column, end, look.scale);
        load<U, N>(slopes, dy + column);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float slope = slopes[i] * share_kept(look, row, column + i) - along;
            values[i] = column + i < end ? expf(values[i] - rest.x) * rest.y * slope * look.scale : 0.0f;
        }
        store<T, N>(dx + column, values);
    }
}

#define ATTEND(END, T, U) \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) attend_##END( \
        const T::Raw *x, U::Raw *y, float2 *rests, const Look look, u32 aligned \
    ) { \
        if (aligned) attend<T, U, 4>(x, y, rests, look); \
        else attend<T, U, 1>(x, y, rests, look); \
    } \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) attend_back_##END( \
        const T::Raw *x, const U::Raw *dy, const float2 *rests, T::Raw *dx, const Look look, u32 aligned \
    ) { \
        if (aligned) attend_back<T, U, 4>(x, dy, rests, dx, look); \
        else attend_back<T, U, 1>(x, dy, rests, dx, look); \
    }

ATTEND(f32_f32, F32, F32)
ATTEND(f32_f16, F32, F16)
ATTEND(f32_bf16, F32, Bf16)
ATTEND(f16_f16, F16, F16)
ATTEND(bf16_bf16, Bf16, Bf16)
