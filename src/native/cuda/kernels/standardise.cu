// Bytes of pictures [count, channels, plane] as float32: (byte / 255 - mean) / deviation, each of these rounded.

#define PACK 4
// Channels at most.
#define CHANNELS 4

struct Channels {
    float means[CHANNELS], deviations[CHANNELS];
};

template <int N>
static __device__ __forceinline__ void standardise(
    const unsigned char *x, float *y, u32 len, u32 plane, u32 channels, const Channels &of
) {
    u64 first = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (first >= len) return;
    u32 channel = u32(first) / plane % channels;
    float values[N];
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = (float(x[first + i]) / 255.0f - of.means[channel]) / of.deviations[channel];
    store<F32, N>(y + first, values);
}

// Where they are aligned, a pack has values of one channel.
extern "C" __global__ void __launch_bounds__(256) standardise(
    const unsigned char *x, float *y, u32 len, u32 plane, u32 channels, u32 aligned, Channels of
) {
    if (aligned) standardise<PACK>(x, y, len, plane, channels, of);
    else standardise<1>(x, y, len, plane, channels, of);
}
