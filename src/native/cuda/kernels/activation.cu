// The two forms of the Gaussian error linear unit, and their backward, in float32 and rounded once.

struct Erf {
    static __device__ __forceinline__ float value(float x) {
        return x * ((erff(x * 0.70710678f) + 1.0f) * 0.5f);
    }
    static __device__ __forceinline__ float slope(float x) {
        float share = (erff(x * 0.70710678f) + 1.0f) * 0.5f;
        return share + x * (expf(x * x * -0.5f) * 0.39894228f);
    }
};

struct Tanh {
    static __device__ __forceinline__ float tanh(float x) {
        return tanhf(x * (x * x * 0.044715f + 1.0f) * 0.79788456f);
    }
    static __device__ __forceinline__ float value(float x) { return x * ((tanh(x) + 1.0f) * 0.5f); }
    static __device__ __forceinline__ float slope(float x) {
        float t = tanh(x);
        return (t + 1.0f) * 0.5f + x * (1.0f - t * t) * ((x * x * 0.134145f + 1.0f) * 0.39894228f);
    }
};

// y = f(x) or, where there is a gradient, y = f'(x)·dy, which may lie where y does.
template <class F, class T, int N>
static __device__ __forceinline__ void curve(
    const typename T::Raw *x, const typename T::Raw *dy, typename T::Raw *y, u64 start
) {
    float values[N];
    load<T, N>(values, x + start);
    if (dy) {
        float slopes[N];
        load<T, N>(slopes, dy + start);
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = slopes[i] * F::slope(values[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = F::value(values[i]);
    }
    store<T, N>(y + start, values);
}

template <class F, class T>
static __device__ __forceinline__ void curves(
    const typename T::Raw *x, const typename T::Raw *dy, typename T::Raw *y, u32 len, u32 aligned
) {
    const int N = 16 / sizeof(typename T::Raw);
    u64 start = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (start >= len) return;
    if (aligned && len - start >= N) curve<F, T, N>(x, dy, y, start);
    else
        for (u64 at = start; at < start + N && at < len; at++) curve<F, T, 1>(x, dy, y, at);
}

#define CURVES(END, T) \
    extern "C" __global__ void __launch_bounds__(256) gelu_##END( \
        const T::Raw *x, const T::Raw *dy, T::Raw *y, u32 len, u32 aligned \
    ) { curves<Erf, T>(x, dy, y, len, aligned); } \
    extern "C" __global__ void __launch_bounds__(256) gelu_tanh_##END( \
        const T::Raw *x, const T::Raw *dy, T::Raw *y, u32 len, u32 aligned \
    ) { curves<Tanh, T>(x, dy, y, len, aligned); }

CURVES(f32, F32)
CURVES(f16, F16)
CURVES(bf16, Bf16)
