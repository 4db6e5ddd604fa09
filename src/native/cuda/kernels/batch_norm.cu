// Batch normalisation of images with what follows it in residual networks: y = bend(norm(x) + residual), or
// bend(norm(x)) + residual, where bend(v) is v above zero and leak·v below. `Format` is that of the images, `PACK` as many of them as are read at once.
//
// A block has a group of channels in some of the rows. A thread has the same place in each of its rows, so that each of
// its values stays with one channel. Where a channel's values in a row are no whole number of packs, as many channels as
// are one make a group: a pack then has values of two channels at most.
//
// With `NHWC` channels lie innermost. A row is a pixel then, and each value of a pack has a channel of its own.
//
// What is summed are differences from about the mean, and the mean is kept as a sum of two numbers: nothing is lost where
// it is large beside the deviation.

#define INLINE static __device__ __forceinline__
#define THREADS 512
#define SPLIT_THREADS 256
// Packs that a thread reads at a time: of one tensor, of several, and where it can keep all that it has.
#define AHEAD 4
#ifdef NHWC
#define GROUP 64
#define AHEAD_OF_EACH 3
#else
#define GROUP 8
#define AHEAD_OF_EACH 2
#endif
#define KEPT 8
#define KEPT_SPLIT 4
// Where values are bent: behind the sum with the residual, or before it.
#define BEND_SUM 1
#define BEND_NORM 2

typedef Format::Raw Raw;

struct Shape {
    u32 rows, channels, plane;
    // Channels of a group, and packs that they have in a row.
    u32 group, tile;
    // Packs of a row that a block has, and in how many pieces the row is.
    u32 wide, across;
    // Rows that a block reads at a time, and that it has at most.
    u32 deep, tall;
    // Blocks that share a group.
    u32 parts;
};

struct Forward {
    const Raw *x, *residual;
    Raw *y;
    const float *gain, *bias, *mean, *variance;
    // Sums [3, channels, parts], and for the backward [3, channels]: the mean, what is left of it, the inverse deviation.
    float *parts, *saved, *new_mean, *new_variance;
    Shape shape;
    float epsilon, keep, share, leak;
    // BEND_SUM, BEND_NORM or none of them.
    u32 bend, packed;
};

// Where a thread's values are.
struct Place {
    u64 start, apart;
    // How many rows.
    u32 left;
    // The group's channel to which its first value belongs, and how many values there are up to the end of that.
    u32 channel, border;
};

INLINE u32 rows_of(const Shape &shape, u32 part) {
    return min(shape.rows - part / shape.across * shape.tall, shape.tall);
}

// Values that a part has of each channel in so many rows.
template <int V>
INLINE float values_of(const Shape &shape, u32 part, u32 rows) {
    u32 wide = min(shape.tile - part % shape.across * shape.wide, shape.wide);
    return __uint2float_rn(wide * V / shape.group * rows);
}

INLINE float values_of_all(const Shape &shape) { return __uint2float_rn(shape.rows * shape.plane); }

template <int V>
INLINE Place place(const Shape &shape, u32 part, u32 group) {
    u32 column = threadIdx.x % shape.wide + part % shape.across * shape.wide, lane = threadIdx.x / shape.wide;
    u32 first = part / shape.across * shape.tall, rows = rows_of(shape, part);
    bool has = lane < min(shape.deep, rows) && column < shape.tile;
    u32 value = has ? column * V : 0;
    u64 row = u64(shape.channels) * shape.plane;
    Place at;
    at.start = (first + lane) * row + u64(group) * shape.group * shape.plane + value;
    at.apart = row * shape.deep;
    at.left = has ? (rows - lane + shape.deep - 1) / shape.deep : 0;
    at.channel = value / shape.plane;
    at.border = (at.channel + 1) * shape.plane - value;
    return at;
}

template <int V, int U>
INLINE void fetch(Pack<Format, V> (&packs)[U], const Raw *from, const Place &at, u32 done) {
#pragma unroll
    for (int u = 0; u < U; u++)
        if (done + u < at.left)
            packs[u] = *reinterpret_cast<const Pack<Format, V> *>(from + at.start + (done + u) * at.apart);
}

template <int V>
INLINE void keep(Raw *to, const Pack<Format, V> &pack, const Place &at, u32 row) {
    *reinterpret_cast<Pack<Format, V> *>(to + at.start + row * at.apart) = pack;
}

// What a thread needs of a vector of the group: one value, or one for each value of a pack.
template <int S>
INLINE void pick(float (&own)[S], const float *of_group, const Place &at) {
#pragma unroll
#ifdef NHWC
    for (int i = 0; i < S; i++) own[i] = of_group[at.channel + i];
#else
    for (int i = 0; i < S; i++) own[i] = of_group[at.channel + (S > 1 && i >= at.border)];
#endif
}

// What a block shares.
template <int S>
struct Desk {
    float sums[2][S == 1 ? THREADS / 32 : 2 * THREADS];
    float totals[3][GROUP];
    float vectors[5][GROUP];
};

// Sums over the block of what its threads have of its only channel.
template <int V, int N>
INLINE void total(
    const float (&sums)[N][1], float (*totals)[GROUP], Desk<1> &desk, const Place &at, const Shape &shape
) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float sum = warp_sum(sums[n][0]);
        if (lane == 0) desk.sums[n][warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x < N) {
        float sum = 0.0f;
        for (u32 i = 0; i < blockDim.x / 32; i++) sum += desk.sums[threadIdx.x][i];
        totals[threadIdx.x][0] = sum;
    }
    __syncthreads();
}

#ifdef NHWC
// And of what they have of each channel of the group, of which a warp has one pixel or several: `wide` is a power of two.
template <int V, int N, int S>
INLINE void total(
    const float (&sums)[N][S], float (*totals)[GROUP], Desk<S> &desk, const Place &at, const Shape &shape
) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < S; i++) {
            float sum = sums[n][i];
            for (u32 apart = shape.wide; apart < 32; apart <<= 1) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
            if (lane < shape.wide) desk.sums[n][warp * GROUP + lane * S + i] = sum;
        }
    __syncthreads();
    if (threadIdx.x < shape.group) {
#pragma unroll
        for (int n = 0; n < N; n++) {
            float sum = 0.0f;
            for (u32 i = 0; i < blockDim.x / 32; i++) sum += desk.sums[n][i * GROUP + threadIdx.x];
            totals[n][threadIdx.x] = sum;
        }
    }
    __syncthreads();
}
#else
// And of what they have of each channel of the group, whose rows they have whole.
template <int V, int N, int S>
INLINE void total(
    const float (&sums)[N][S], float (*totals)[GROUP], Desk<S> &desk, const Place &at, const Shape &shape
) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) {
        float low = 0.0f, high = 0.0f;
#pragma unroll
        for (int i = 0; i < S; i++)
            if (i < at.border) low += sums[n][i];
            else high += sums[n][i];
        desk.sums[n][threadIdx.x] = low;
        desk.sums[n][THREADS + threadIdx.x] = high;
    }
    __syncthreads();
    for (u32 channel = warp; channel < shape.group; channel += blockDim.x / 32) {
        u32 first = channel * shape.plane, from = first / V, wide = (first + shape.plane + V - 1) / V - from;
        float found[N] = {};
        for (u32 k = lane; k < wide * shape.deep; k += 32) {
            u32 column = from + k % wide, thread = k / wide * shape.wide + column;
            // The first pack may begin in the channel before.
            if (column * V < first) thread += THREADS;
#pragma unroll
            for (int n = 0; n < N; n++) found[n] += desk.sums[n][thread];
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            float sum = warp_sum(found[n]);
            if (lane == 0) totals[n][channel] = sum;
        }
    }
    __syncthreads();
}

#endif

// Of each channel of the group, a value near the mean, and the sums of differences from it and of their squares, into the
// rows 2, 0 and 1 of `totals`. The last packs that were read stay.
template <int V, int S, int U, bool WHOLE>
INLINE void measure(
    Pack<Format, V> (&packs)[U], const Raw *x, Desk<S> &desk, const Place &at, const Shape &shape, u32 part
) {
    float sums[2][S] = {}, first[1][S] = {};
    fetch(packs, x, at, 0);
#pragma unroll
    for (int u = 0; u < U; u++)
        if (u < at.left)
#pragma unroll
            for (int i = 0; i < V; i++) first[0][i % S] += Format::get(packs[u].raw[i]);
    total<V>(first, desk.totals + 2, desk, at, shape);
    float count = values_of<V>(shape, part, min(rows_of(shape, part), U * shape.deep));
    if (threadIdx.x < shape.group) desk.totals[2][threadIdx.x] /= count;
    __syncthreads();
    float near[S];
    pick(near, desk.totals[2], at);
    for (u32 done = 0;;) {
#pragma unroll
        for (int u = 0; u < U; u++)
            if (done + u < at.left)
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float apart = Format::get(packs[u].raw[i]) - near[i % S];
                    sums[0][i % S] += apart;
                    sums[1][i % S] = __fmaf_rn(apart, apart, sums[1][i % S]);
                }
        done += U;
        if (WHOLE || done >= at.left) break;
        fetch(packs, x, at, done);
    }
    total<V>(sums, desk.totals, desk, at, shape);
}

// What values of a channel are normalised with: (x - vectors[0])·vectors[1] + vectors[2].
template <int S>
INLINE void prepare(
    Desk<S> &desk, u32 channel, float mean, float rest, float inverse, const float *gain, const float *bias
) {
    float scale = inverse * *gain;
    desk.vectors[0][channel] = mean;
    desk.vectors[1][channel] = scale;
    desk.vectors[2][channel] = *bias - rest * scale;
}

// The sum of squared differences from a value, where these are the sums of differences from what lies `off` above it.
INLINE float squares_from(float off, float sum, float squares, float count) {
    return squares + off * (2.0f * sum + count * off);
}

// Ends the statistics of a channel, whose mean is `near + apart`.
INLINE void settle(const Forward &of, u32 channel, float near, float apart, float squares) {
    u32 all = of.shape.channels;
    float count = values_of_all(of.shape);
    // The sum of two numbers and what its rounding took (Knuth).
    float mean = near + apart, back = mean - near, rest = (near - (mean - back)) + (apart - back);
    squares = squares < 0.0f ? 0.0f : squares;
    float inverse = 1.0f / sqrtf(squares / count + of.epsilon);
    of.saved[channel] = mean;
    of.saved[all + channel] = rest;
    of.saved[2 * all + channel] = inverse;
    of.new_mean[channel] = of.mean[channel] * of.keep + mean * of.share;
    of.new_variance[channel] = of.variance[channel] * of.keep + squares / fmaxf(count - 1.0f, 1.0f) * of.share;
}

// Loads mean, scale and shift of the group's channels, from what was saved of the batch.
template <int S>
INLINE void recall(
    Desk<S> &desk, const Shape &shape, u32 group, const float *saved, const float *gain, const float *bias
) {
    if (threadIdx.x < shape.group) {
        u32 all = shape.channels, place = group * shape.group + threadIdx.x;
        float mean = saved[place], rest = saved[all + place], inverse = saved[2 * all + place];
        prepare(desk, threadIdx.x, mean, rest, inverse, gain + place, bias + place);
    }
    __syncthreads();
}

// The vectors of the group as a thread needs them.
template <int S>
struct By {
    float mean[S], scale[S], shift[S];

    INLINE By of(const Desk<S> &desk, const Place &at) {
        By by;
        pick(by.mean, desk.vectors[0], at);
        pick(by.scale, desk.vectors[1], at);
        pick(by.shift, desk.vectors[2], at);
        return by;
    }

    __device__ __forceinline__ float norm(Raw x, int i) const {
        return __fmaf_rn(Format::get(x) - mean[i % S], scale[i % S], shift[i % S]);
    }
};

// What is no number stays none.
INLINE float bend(float value, float leak) {
    return value < 0.0f ? (leak > 0.0f ? value * leak : 0.0f) : value;
}

template <int V, int S, int U>
INLINE void answer(const Forward &of, const Pack<Format, V> *packs, const By<S> &by, const Place &at, u32 done) {
    Pack<Format, V> beside[U];
    if (of.residual) fetch(beside, of.residual, at, done);
#pragma unroll
    for (int u = 0; u < U; u++)
        if (done + u < at.left) {
            Pack<Format, V> made;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float value = by.norm(packs[u].raw[i], i);
                if (of.bend == BEND_NORM) value = bend(value, of.leak);
                if (of.residual) value += Format::get(beside[u].raw[i]);
                if (of.bend == BEND_SUM) value = bend(value, of.leak);
                made.raw[i] = Format::put(value);
            }
            keep(of.y, made, at, done + u);
        }
}

// The sums of a part of the values.
template <int V, int S>
INLINE void sums(const Forward &of) {
    __shared__ Desk<S> desk;
    const Shape &shape = of.shape;
    u32 part = blockIdx.x, group = blockIdx.y;
    Place at = place<V>(shape, part, group);
    Pack<Format, V> packs[AHEAD];
    measure<V, S, AHEAD, false>(packs, of.x, desk, at, shape, part);
    if (threadIdx.x < shape.group) {
        u64 channel = group * shape.group + threadIdx.x, all = u64(shape.channels) * shape.parts;
#pragma unroll
        for (int n = 0; n < 3; n++) of.parts[n * all + channel * shape.parts + part] = desk.totals[n][threadIdx.x];
    }
}

// Statistics of a channel from the sums of all parts, by a warp.
template <int V>
INLINE void join(const Forward &of) {
    const Shape &shape = of.shape;
    u32 channel = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (channel >= shape.channels) return;
    u64 all = u64(shape.channels) * shape.parts;
    const float *sums = of.parts + u64(channel) * shape.parts, *squares = sums + all, *nears = squares + all;
    float near = nears[0], apart = 0.0f, square = 0.0f;
    for (u32 part = lane; part < shape.parts; part += 32)
        apart += values_of<V>(shape, part, rows_of(shape, part)) * (nears[part] - near) + sums[part];
    apart = warp_sum(apart) / values_of_all(shape);
    for (u32 part = lane; part < shape.parts; part += 32) {
        float count = values_of<V>(shape, part, rows_of(shape, part));
        square += squares_from(nears[part] - near - apart, sums[part], squares[part], count);
    }
    square = warp_sum(square);
    if (lane == 0) settle(of, channel, near, apart, square);
}

// The answer, from what was saved of the batch; from running statistics where nothing was.
template <int V, int S>
INLINE void apply(const Forward &of) {
    __shared__ Desk<S> desk;
    const Shape &shape = of.shape;
    // In the opposite order: what was read last is still near.
    u32 part = gridDim.x - 1 - blockIdx.x, group = gridDim.y - 1 - blockIdx.y;
    Place at = place<V>(shape, part, group);
    Pack<Format, V> packs[AHEAD_OF_EACH];
    fetch(packs, of.x, at, 0);
    if (of.saved) {
        recall(desk, shape, group, of.saved, of.gain, of.bias);
    } else if (threadIdx.x < shape.group) {
        u32 place = group * shape.group + threadIdx.x;
        float inverse = 1.0f / sqrtf(of.variance[place] + of.epsilon);
        prepare(desk, threadIdx.x, of.mean[place], 0.0f, inverse, of.gain + place, of.bias + place);
    }
    if (!of.saved) __syncthreads();
    By<S> by = By<S>::of(desk, at);
    for (u32 done = 0; done < at.left; done += AHEAD_OF_EACH) {
        if (done > 0) fetch(packs, of.x, at, done);
        answer<V, S, AHEAD_OF_EACH>(of, packs, by, at, done);
    }
}

// All at once, where a block has all values of its group and its threads can keep them.
template <int V, int S, int U>
INLINE void whole(const Forward &of) {
    __shared__ Desk<S> desk;
    const Shape &shape = of.shape;
    Place at = place<V>(shape, 0, blockIdx.y);
    Pack<Format, V> packs[U];
    measure<V, S, U, true>(packs, of.x, desk, at, shape, 0);
    if (threadIdx.x < shape.group) {
        u32 channel = threadIdx.x;
        float sum = desk.totals[0][channel], count = values_of_all(shape), apart = sum / count;
        float square = squares_from(-apart, sum, desk.totals[1][channel], count);
        settle(of, blockIdx.y * shape.group + channel, desk.totals[2][channel], apart, square);
    }
    // A thread reads what it has written itself.
    recall(desk, shape, blockIdx.y, of.saved, of.gain, of.bias);
    By<S> by = By<S>::of(desk, at);
#pragma unroll
    for (u32 done = 0; done < U; done += AHEAD) answer<V, S, AHEAD>(of, packs + done, by, at, done);
}

// With blocks at most of so many threads, and at least so many at once on a processor.
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)

#ifndef NHWC
KERNEL(THREADS, 2) batch_sums(Forward of) { of.packed ? sums<PACK, 1>(of) : sums<1, 1>(of); }
KERNEL(THREADS, 2) batch_apply(Forward of) { of.packed ? apply<PACK, 1>(of) : apply<1, 1>(of); }
KERNEL(THREADS, 1) batch_whole(Forward of) { of.packed ? whole<PACK, 1, KEPT>(of) : whole<1, 1, KEPT>(of); }
KERNEL(THREADS, 1) batch_whole_split(Forward of) { whole<PACK, PACK, KEPT_SPLIT>(of); }
#endif
KERNEL(SPLIT_THREADS, 3) batch_sums_split(Forward of) { sums<PACK, PACK>(of); }
KERNEL(SPLIT_THREADS, 3) batch_apply_split(Forward of) { apply<PACK, PACK>(of); }
KERNEL(SPLIT_THREADS, 3) batch_join(Forward of) { of.packed ? join<PACK>(of) : join<1>(of); }
