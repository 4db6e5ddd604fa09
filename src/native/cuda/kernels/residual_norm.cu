// The sum of a residual and of what is added to it, some of it dropped, together with its layer normalisation, a warp for each row, which it holds; and the backward of both.
// To be compiled behind norm.cu.

// Packs of four values that a lane holds of a row, which has up to 1,024.
#define PACKS 8
// Blocks of the backward that a processor has at once.
#define BLOCKS 4

// Which values of what is added stay, if any are dropped.
struct Drop {
    u32 on;
    u32 key;
    float threshold;
    float factor;

    template <int N>
    __device__ __forceinline__ void apply(float (&values)[N], u32 first) const {
        if (!on) return;
#pragma unroll
        for (int i = 0; i < N; i++) values[i] *= kept(first + i, key, threshold, factor);
    }
};

// P packs of four values a lane. What is normalised is also written in float32 where there is a place for it.
template <class T, int P>
static __device__ __forceinline__ void join(
    const float *x, const typename T::Raw *added, const float *gain, const float *bias, float *sum,
    typename T::Raw *normed, float *exact, float *means, float *inverses, u32 rows, u32 features, float epsilon, Drop drop
) {
    u32 row = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    u64 start = u64(row) * features;
    float held[P][4], count = __uint2float_rn(features), total = 0.0f;
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 f = (p * 32 + lane) * 4;
        if (f >= features) continue;
        float more[4];
        load<F32, 4>(held[p], x + start + f);
        load<T, 4>(more, added + start + f);
        drop.apply(more, u32(start) + f);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            held[p][i] += more[i];
            total += held[p][i];
        }
        store<F32, 4>(sum + start + f, held[p]);
    }
    float mean = warp_sum(total) / count, squares = 0.0f;
#pragma unroll
    for (int p = 0; p < P; p++) {
        if ((p * 32 + lane) * 4 >= features) continue;
#pragma unroll
        for (int i = 0; i < 4; i++) squares += (held[p][i] - mean) * (held[p][i] - mean);
    }
    float inverse = 1.0f / sqrtf(warp_sum(squares) / count + epsilon);
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 f = (p * 32 + lane) * 4;
        if (f >= features) continue;
        float gains[4], biases[4];
        load<F32, 4>(gains, gain + f);
        load<F32, 4>(biases, bias + f);
#pragma unroll
        for (int i = 0; i < 4; i++) held[p][i] = (held[p][i] - mean) * inverse * gains[i] + biases[i];
        store<T, 4>(normed + start + f, held[p]);
        if (exact) store<F32, 4>(exact + start + f, held[p]);
    }
    if (lane == 0) {
        means[row] = mean;
        inverses[row] = inverse;
    }
}

// The gradients of the residual and of what was added, and what the rows of each block add to those of gain and bias: `parts` is [2, blocks, features]. There are gradients of what was
// normalised and of what goes on in float32: the same in float32 if `post`, otherwise the sum. The latter may be missing.
template <class T, int P>
static __device__ __forceinline__ void join_back(
    const float *sum, const typename T::Raw *of_normed, const float *of_stream, const float *gain, const float *means,
    const float *inverses, float *of_x, typename T::Raw *of_added, float *parts, u32 rows, u32 features, u32 post, Drop drop
) {
    // In registers these sums would leave room for half as many warps.
    __shared__ __align__(16) float of_gain[WARPS][128 * P], of_bias[WARPS][128 * P];
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float count = __uint2float_rn(features);
#pragma unroll
    for (int p = 0; p < P; p++) {
        float nothing[4] = {};
        store<F32, 4>(&of_gain[warp][(p * 32 + lane) * 4], nothing);
        store<F32, 4>(&of_bias[warp][(p * 32 + lane) * 4], nothing);
    }
    for (u32 row = blockIdx.x * WARPS + warp; row < rows; row += gridDim.x * WARPS) {
        u64 start = u64(row) * features;
        float hats[P][4], slopes[P][4], more[P][4], mean = means[row], inverse = inverses[row], total = 0.0f, along = 0.0f;
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 f = (p * 32 + lane) * 4;
            if (f >= features) continue;
            load<F32, 4>(hats[p], sum + start + f);
            load<T, 4>(slopes[p], of_normed + start + f);
            if (of_stream) load<F32, 4>(more[p], of_stream + start + f);
        }
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 f = (p * 32 + lane) * 4;
            if (f >= features) continue;
            float gains[4], to_gain[4], to_bias[4];
            load<F32, 4>(gains, gain + f);
            load<F32, 4>(to_gain, &of_gain[warp][f]);
            load<F32, 4>(to_bias, &of_bias[warp][f]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (post && of_stream) slopes[p][i] += more[p][i];
                hats[p][i] = (hats[p][i] - mean) * inverse;
                to_gain[i] += slopes[p][i] * hats[p][i];
                to_bias[i] += slopes[p][i];
                slopes[p][i] *= gains[i];
                total += slopes[p][i];
                along += slopes[p][i] * hats[p][i];
            }
            store<F32, 4>(&of_gain[warp][f], to_gain);
            store<F32, 4>(&of_bias[warp][f], to_bias);
        }
        total = warp_sum(total) / count;
        along = warp_sum(along) / count;
#pragma unroll
        for (int p = 0; p < P; p++) {
            u32 f = (p * 32 + lane) * 4;
            if (f >= features) continue;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                slopes[p][i] = inverse * (slopes[p][i] - total - hats[p][i] * along);
                if (!post && of_stream) slopes[p][i] += more[p][i];
            }
            store<F32, 4>(of_x + start + f, slopes[p]);
            drop.apply(slopes[p], u32(start) + f);
            store<T, 4>(of_added + start + f, slopes[p]);
        }
    }
    __syncthreads();
    for (u32 f = threadIdx.x; f < features; f += 32 * WARPS) {
        float to_gain = 0.0f, to_bias = 0.0f;
        for (int i = 0; i < WARPS; i++) {
            to_gain += of_gain[i][f];
            to_bias += of_bias[i][f];
        }
        parts[u64(blockIdx.x) * features + f] = to_gain;
        parts[u64(gridDim.x + blockIdx.x) * features + f] = to_bias;
    }
}

#define JOIN(END, T) \
    extern "C" __global__ void __launch_bounds__(32 * WARPS) join_##END( \
        const float *x, const T::Raw *added, const float *gain, const float *bias, float *sum, T::Raw *normed, \
        float *exact, float *means, float *inverses, u32 rows, u32 features, float epsilon, Drop drop \
    ) { join<T, PACKS>(x, added, gain, bias, sum, normed, exact, means, inverses, rows, features, epsilon, drop); } \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS) join_back_##END( \
        const float *sum, const T::Raw *of_normed, const float *of_stream, const float *gain, const float *means, \
        const float *inverses, float *of_x, T::Raw *of_added, float *parts, u32 rows, u32 features, u32 post, Drop drop \
    ) { \
        join_back<T, PACKS>( \
            sum, of_normed, of_stream, gain, means, inverses, of_x, of_added, parts, rows, features, post, drop \
        ); \
    }

JOIN(f32, F32)
JOIN(f16, F16)
JOIN(bf16, Bf16)
