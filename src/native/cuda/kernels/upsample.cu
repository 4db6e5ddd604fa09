// Images twice as high and wide, each value four times, with something added; and the backward: sums of two by two values.

// Two values for each of `N`; where that is one, they may begin anywhere.
template <class T, int N>
static __device__ __forceinline__ void pairs(float (&values)[2 * N], const typename T::Raw *from) {
    if (N > 1) load<T, 2 * N>(values, from);
    else
        for (int i = 0; i < 2; i++) values[i] = T::get(from[i]);
}

// `N` values of a row at a time.
template <class T, int N>
static __device__ __forceinline__ void spread(
    const typename T::Raw *x, const typename T::Raw *lateral, typename T::Raw *y, u64 row, u32 column, u32 width
) {
    float values[N], made[2 * N];
    load<T, N>(values, x + row * width + column);
#pragma unroll
    for (u32 down = 0; down < 2; down++) {
        u64 place = (row * 2 + down) * 2 * width + column * 2;
#pragma unroll
        for (int i = 0; i < 2 * N; i++) made[i] = values[i / 2];
        if (lateral) {
            float beside[2 * N];
            pairs<T, N>(beside, lateral + place);
#pragma unroll
            for (int i = 0; i < 2 * N; i++) made[i] += beside[i];
        }
        store<T, 2 * N>(y + place, made);
    }
}

template <class T, int N>
static __device__ __forceinline__ void gather(
    const typename T::Raw *dy, typename T::Raw *dx, u64 row, u32 column, u32 width
) {
    float upper[2 * N], lower[2 * N], sums[N];
    pairs<T, N>(upper, dy + row * 4 * width + column * 2);
    pairs<T, N>(lower, dy + (row * 2 + 1) * 2 * width + column * 2);
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] = (upper[2 * i] + upper[2 * i + 1]) + (lower[2 * i] + lower[2 * i + 1]);
    store<T, N>(dx + row * width + column, sums);
}

// All rows of all images, `count` packs of them, which a row has a whole number of.
#define KERNELS(END, T) \
    extern "C" __global__ void __launch_bounds__(256) upsample_##END( \
        const T::Raw *x, const T::Raw *lateral, T::Raw *y, u32 count, u32 width, u32 packed \
    ) { \
        const int N = 8 / sizeof(T::Raw); \
        u32 place = blockIdx.x * blockDim.x + threadIdx.x, packs = packed ? width / N : width; \
        if (place >= count) return; \
        if (packed) spread<T, N>(x, lateral, y, place / packs, place % packs * N, width); \
        else spread<T, 1>(x, lateral, y, place / packs, place % packs, width); \
    } \
    extern "C" __global__ void __launch_bounds__(256) upsample_back_##END( \
        const T::Raw *dy, T::Raw *dx, u32 count, u32 width, u32 packed \
    ) { \
        const int N = 8 / sizeof(T::Raw); \
        u32 place = blockIdx.x * blockDim.x + threadIdx.x, packs = packed ? width / N : width; \
        if (place >= count) return; \
        if (packed) gather<T, N>(dy, dx, place / packs, place % packs * N, width); \
        else gather<T, 1>(dy, dx, place / packs, place % packs, width); \
    }

KERNELS(f32, F32)
KERNELS(f16, F16)
KERNELS(bf16, Bf16)
