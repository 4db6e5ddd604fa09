// The two forms of the Gaussian error linear unit, and their backward, in float32 and rounded once.

// Φ and φ, the distribution function and the density of the standard normal distribution.
struct Normal {
    float below, density;
};

static __device__ __forceinline__ Normal normal(float x, F32) {
    return {(erff(x * 0.70710678f) + 1.0f) * 0.5f, expf(x * x * -0.5f) * 0.39894228f};
}

// For formats of two bytes. Off by at most 7.5e-8 (Abramowitz and Stegun 1964, 7.1.26), which they show only in values below 1e-3.
template <class T>
static __device__ __forceinline__ Normal normal(float x, T) {
    float power = __expf(x * x * -0.5f), t = __fdividef(1.0f, __fmaf_rn(fabsf(x), 0.3275911f * 0.70710678f, 1.0f));
    float sum = __fmaf_rn(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
    sum = __fmaf_rn(t, sum, 0.5f * 1.421413741f);
    sum = __fmaf_rn(t, sum, 0.5f * -0.284496736f);
    sum = __fmaf_rn(t, sum, 0.5f * 0.254829592f);
    float beyond = sum * t * power;
    return {x < 0.0f ? beyond : 1.0f - beyond, power * 0.39894228f};
}

struct Erf {
    template <class T>
    static __device__ __forceinline__ float value(float x) { return x * normal(x, T()).below; }
    template <class T>
    static __device__ __forceinline__ float slope(float x) {
        Normal at = normal(x, T());
        return at.below + x * at.density;
    }
};

// (1 + tanh(x))/2.
static __device__ __forceinline__ float sigmoid_of_twice(float x, F32) { return (tanhf(x) + 1.0f) * 0.5f; }

template <class T>
static __device__ __forceinline__ float sigmoid_of_twice(float x, T) { return __fdividef(1.0f, 1.0f + __expf(-2.0f * x)); }

struct Tanh {
    template <class T>
    static __device__ __forceinline__ float below(float x) {
        return sigmoid_of_twice(x * (x * x * 0.044715f + 1.0f) * 0.79788456f, T());
    }
    template <class T>
    static __device__ __forceinline__ float value(float x) { return x * below<T>(x); }
    template <class T>
    static __device__ __forceinline__ float slope(float x) {
        float share = below<T>(x);
        return share + x * (4.0f * share * (1.0f - share)) * ((x * x * 0.134145f + 1.0f) * 0.39894228f);
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
        for (int i = 0; i < N; i++) values[i] = slopes[i] * F::template slope<T>(values[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) values[i] = F::template value<T>(values[i]);
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
