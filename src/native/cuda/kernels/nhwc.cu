// Images whose channels lie innermost: a matrix of pixels by channels. A thread has N channels of a pixel.

#define THREADS 256

// The slopes before the rectifier whose answer was `y`, or as they are where there is none; and of each channel their sum over `tall`
// pixels: `parts` is [stretches, channels].
template <class T, int N>
static __device__ __forceinline__ void bias_back(
    const typename T::Raw *dy, const typename T::Raw *y, typename T::Raw *dx, float *parts, u32 pixels, u32 channels, u32 tall,
    u32 across
) {
    __shared__ float shared[N][THREADS];
    // So many threads share a pixel; the others have the pixels behind it.
    u32 lane = threadIdx.x % across, down = threadIdx.x / across, high = THREADS / across;
    u32 channel = (blockIdx.x * across + lane) * N, first = blockIdx.y * tall;
    u32 end = pixels - first < tall ? pixels : first + tall;
    float sums[N] = {};
    if (down < high && channel < channels)
#pragma unroll 4
        for (u32 pixel = first + down; pixel < end; pixel += high) {
            u64 at = u64(pixel) * channels + channel;
            float slopes[N];
            load<T, N>(slopes, dy + at);
            if (y) {
                float made[N];
                load<T, N>(made, y + at);
#pragma unroll
                for (int i = 0; i < N; i++) slopes[i] = made[i] <= 0.0f ? 0.0f : slopes[i];
                store<T, N>(dx + at, slopes);
            }
#pragma unroll
            for (int i = 0; i < N; i++) sums[i] += slopes[i];
        }
#pragma unroll
    for (int i = 0; i < N; i++) shared[i][threadIdx.x] = sums[i];
    __syncthreads();
    if (down != 0 || channel >= channels) return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float sum = 0.0f;
        for (u32 row = 0; row < high; row++) sum += shared[i][row * across + lane];
        sums[i] = sum;
    }
    store<F32, N>(parts + u64(blockIdx.y) * channels + channel, sums);
}

// The sum of each channel's parts, by a warp, always in the same order.
extern "C" __global__ void __launch_bounds__(THREADS) bias_total(const float *parts, float *sums, u32 stretches, u32 channels) {
    u32 channel = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (channel >= channels) return;
    float sum = 0.0f;
    for (u32 part = threadIdx.x % 32; part < stretches; part += 32) sum += parts[u64(part) * channels + channel];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[channel] = sum;
}

// Windows of `side` pixels each way, the next one `stride` pixels on, at least `side`: none overlap.
struct Windows {
    u32 channels, height, width, side, stride, packed;
};

// Whether a value takes the place of the largest so far: the first of equals stays, and what is no number is the largest.
static __device__ __forceinline__ bool larger(float value, float most) { return value > most || value != value; }

// The largest value of a window, and its number in the window. `x` is the window's first pixel.
template <class T, int N>
static __device__ __forceinline__ void most(
    float (&best)[N], u32 (&which)[N], const typename T::Raw *x, const Windows &of
) {
    load<T, N>(best, x);
#pragma unroll
    for (int k = 0; k < N; k++) which[k] = 0;
    for (u32 i = 0; i < of.side; i++)
        for (u32 j = 0; j < of.side; j++) {
            float values[N];
            load<T, N>(values, x + (u64(i) * of.width + j) * of.channels);
            u32 number = i * of.side + j;
#pragma unroll
            for (int k = 0; k < N; k++)
                if (number != 0 && larger(values[k], best[k])) {
                    best[k] = values[k];
                    which[k] = number;
                }
        }
}

// Where a thread's window is, among `high` by `wide` of each image.
struct At {
    u32 image, top, left, channel;
};

template <int N>
static __device__ __forceinline__ bool at(At &at, const Windows &of, u32 images, u32 high, u32 wide) {
    u32 n = blockIdx.x * THREADS + threadIdx.x, packs = of.channels / N;
    at.channel = n % packs * N;
    n /= packs;
    at.left = n % wide;
    n /= wide;
    at.top = n % high;
    at.image = n / high;
    return at.image < images;
}

template <class T, int N>
static __device__ __forceinline__ void pool(const typename T::Raw *x, typename T::Raw *y, const Windows &of, u32 images) {
    u32 high = (of.height - of.side) / of.stride + 1, wide = (of.width - of.side) / of.stride + 1;
    At on;
    if (!at<N>(on, of, images, high, wide)) return;
    u64 pixel = (u64(on.image) * of.height + on.top * of.stride) * of.width + on.left * of.stride;
    float best[N];
    u32 which[N];
    most<T, N>(best, which, x + pixel * of.channels + on.channel, of);
    store<T, N>(y + ((u64(on.image) * high + on.top) * wide + on.left) * of.channels + on.channel, best);
}

// A thread has a window with the pixels up to the next one, or the pixels behind the last.
template <class T, int N>
static __device__ __forceinline__ void pool_back(
    const typename T::Raw *x, const typename T::Raw *dy, typename T::Raw *dx, const Windows &of, u32 images
) {
    u32 high = (of.height - of.side) / of.stride + 1, wide = (of.width - of.side) / of.stride + 1;
    At on;
    if (!at<N>(on, of, images, (of.height + of.stride - 1) / of.stride, (of.width + of.stride - 1) / of.stride)) return;
    u32 top = on.top * of.stride, left = on.left * of.stride;
    u64 pixel = (u64(on.image) * of.height + top) * of.width + left;
    float best[N], slopes[N] = {};
    u32 which[N] = {};
    if (on.top < high && on.left < wide) {
        most<T, N>(best, which, x + pixel * of.channels + on.channel, of);
        load<T, N>(slopes, dy + ((u64(on.image) * high + on.top) * wide + on.left) * of.channels + on.channel);
    }
    for (u32 i = 0; i < of.stride && top + i < of.height; i++)
        for (u32 j = 0; j < of.stride && left + j < of.width; j++) {
            bool within = i < of.side && j < of.side;
            float values[N];
#pragma unroll
            for (int k = 0; k < N; k++) values[k] = within && which[k] == i * of.side + j ? slopes[k] : 0.0f;
            store<T, N>(dx + (pixel + u64(i) * of.width + j) * of.channels + on.channel, values);
        }
}

#define NHWC(END, T) \
    extern "C" __global__ void __launch_bounds__(THREADS) bias_back_##END( \
        const T::Raw *dy, const T::Raw *y, T::Raw *dx, float *parts, u32 pixels, u32 channels, u32 tall, u32 across, \
        u32 packed \
    ) { \
        if (packed) bias_back<T, 16 / sizeof(T::Raw)>(dy, y, dx, parts, pixels, channels, tall, across); \
        else bias_back<T, 1>(dy, y, dx, parts, pixels, channels, tall, across); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS) pool_##END(const T::Raw *x, T::Raw *y, Windows of, u32 images) { \
        if (of.packed) pool<T, 16 / sizeof(T::Raw)>(x, y, of, images); \
        else pool<T, 1>(x, y, of, images); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS) pool_back_##END( \
        const T::Raw *x, const T::Raw *dy, T::Raw *dx, Windows of, u32 images \
    ) { \
        if (of.packed) pool_back<T, 16 / sizeof(T::Raw)>(x, dy, dx, of, images); \
        else pool_back<T, 1>(x, dy, dx, of, images); \
    }

NHWC(f32, F32)
NHWC(f16, F16)
NHWC(bf16, Bf16)
