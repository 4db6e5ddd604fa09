// Dropout, and its backward.

template <class T>
static __device__ __forceinline__ void drop(
    const typename T::Raw *x, typename T::Raw *y, u32 len, u32 key, float threshold, float scale, u32 aligned
) {
    const int N = 16 / sizeof(typename T::Raw);
    // The mask is made in the format of what it is multiplied with.
    float factor = T::get(T::put(scale));
    u64 start = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (start >= len) return;
    u32 first = u32(start);
    if (aligned && len - first >= N) {
        float values[N];
        load<T, N>(values, x + first);
#pragma unroll
        for (int k = 0; k < N; k++) values[k] *= kept(first + k, key, threshold, factor);
        store<T, N>(y + first, values);
    } else {
        for (u32 k = 0; k < N && k < len - first; k++)
            y[first + k] = T::put(T::get(x[first + k]) * kept(first + k, key, threshold, factor));
    }
}

#define DROP(NAME, T) \
    extern "C" __global__ void __launch_bounds__(256) NAME( \
        const T::Raw *x, T::Raw *y, u32 len, u32 key, float threshold, float scale, u32 aligned \
    ) { drop<T>(x, y, len, key, threshold, scale, aligned); }

DROP(drop_f32, F32)
DROP(drop_f16, F16)
DROP(drop_bf16, Bf16)
