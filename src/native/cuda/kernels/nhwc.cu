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

// Windows of `side` pixels each way, `stride` pixels apart, in each image `high` by `wide` of them. The first begins `padding` pixels before
// the image; what is not in the image does not count.
struct Windows {
    u32 channels, height, width, side, stride, padding, high, wide, images, packed;
};

// Whether a value takes the place of the largest so far: the first of equals stays, and what is no number is the largest.
static __device__ __forceinline__ bool larger(float value, float most) { return value > most || value != value; }

// The pixel and channels of a thread, among `high` by `wide` pixels of each image.
struct At {
    u32 image, top, left, channel;
};

template <int N>
static __device__ __forceinline__ bool at(At &at, const Windows &of, u32 high, u32 wide) {
    u32 n = blockIdx.x * THREADS + threadIdx.x, packs = of.channels / N;
    at.channel = n % packs * N;
    n /= packs;
    at.left = n % wide;
    n /= wide;
    at.top = n % high;
    at.image = n / high;
    return at.image < of.images;
}

template <int N>
struct __align__(N) Bytes {
    unsigned char raw[N];
};

// The largest value of each window, and its number in the window.
template <class T, int N>
static __device__ __forceinline__ void pool(
    const typename T::Raw *x, typename T::Raw *y, unsigned char *numbers, const Windows &of
) {
    At on;
    if (!at<N>(on, of, of.high, of.wide)) return;
    float best[N] = {};
    Bytes<N> which = {};
    bool begun = false;
    for (u32 i = 0; i < of.side; i++)
        for (u32 j = 0; j < of.side; j++) {
            // Positions before the image wrap to large numbers.
            u32 row = on.top * of.stride + i - of.padding, column = on.left * of.stride + j - of.padding;
            if (row >= of.height || column >= of.width) continue;
            float values[N];
            load<T, N>(values, x + ((u64(on.image) * of.height + row) * of.width + column) * of.channels + on.channel);
#pragma unroll
            for (int k = 0; k < N; k++)
                if (!begun || larger(values[k], best[k])) {
                    best[k] = values[k];
                    which.raw[k] = i * of.side + j;
                }
            begun = true;
        }
    u64 place = ((u64(on.image) * of.high + on.top) * of.wide + on.left) * of.channels + on.channel;
    store<T, N>(y + place, best);
    *reinterpret_cast<Bytes<N> *>(numbers + place) = which;
}

// The gradient of each pixel: the sum of those of the windows in which it is the largest, in their order.
template <class T, int N>
static __device__ __forceinline__ void pool_back(
    const unsigned char *numbers, const typename T::Raw *dy, typename T::Raw *dx, const Windows &of
) {
    At on;
    if (!at<N>(on, of, of.height, of.width)) return;
    u32 row = on.top + of.padding, column = on.left + of.padding;
    u32 top = row < of.side ? 0 : (row - of.side) / of.stride + 1, left = column < of.side ? 0 : (column - of.side) / of.stride + 1;
    float sums[N] = {};
    for (u32 i = top; i < of.high && i * of.stride <= row; i++)
        for (u32 j = left; j < of.wide && j * of.stride <= column; j++) {
            u64 place = ((u64(on.image) * of.high + i) * of.wide + j) * of.channels + on.channel;
            u32 number = (row - i * of.stride) * of.side + column - j * of.stride;
            Bytes<N> which = *reinterpret_cast<const Bytes<N> *>(numbers + place);
            float slopes[N];
            load<T, N>(slopes, dy + place);
#pragma unroll
            for (int k = 0; k < N; k++)
                if (which.raw[k] == number) sums[k] += slopes[k];
        }
    store<T, N>(dx + ((u64(on.image) * of.height + on.top) * of.width + on.left) * of.channels + on.channel, sums);
}

#define NHWC(END, T) \
    extern "C" __global__ void __launch_bounds__(THREADS) bias_back_##END( \
        const T::Raw *dy, const T::Raw *y, T::Raw *dx, float *parts, u32 pixels, u32 channels, u32 tall, u32 across, \
        u32 packed \
    ) { \
        if (packed) bias_back<T, 16 / sizeof(T::Raw)>(dy, y, dx, parts, pixels, channels, tall, across); \
        else bias_back<T, 1>(dy, y, dx, parts, pixels, channels, tall, across); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS) pool_##END( \
        const T::Raw *x, T::Raw *y, unsigned char *numbers, Windows of \
    ) { \
        if (of.packed) pool<T, 16 / sizeof(T::Raw)>(x, y, numbers, of); \
        else pool<T, 1>(x, y, numbers, of); \
    } \
    extern "C" __global__ void __launch_bounds__(THREADS) pool_back_##END( \
        const unsigned char *numbers, const T::Raw *dy, T::Raw *dx, Windows of \
    ) { \
        if (of.packed) pool_back<T, 16 / sizeof(T::Raw)>(numbers, dy, dx, of); \
        else pool_back<T, 1>(numbers, dy, dx, of); \
    }

NHWC(f32, F32)
NHWC(f16, F16)
NHWC(bf16, Bf16)
