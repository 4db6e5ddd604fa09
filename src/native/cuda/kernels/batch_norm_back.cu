// The gradients of batch normalisation and of what follows it.

struct Backward {
    // y is given where it tells what was bent; else that is computed once more. A second part of dy may be given, which is added to the
    // first. Without y, dresidual gets the sum.
    const Raw *dy, *x, *y, *second;
    Raw *dx, *dresidual;
    const float *gain, *bias, *saved;
    // Sums [2, channels, parts].
    float *parts, *dgain, *dbias;
    Shape shape;
    float leak;
    u32 bent, packed;
};

// The slope before the bend, from what was bent or what came of it.
INLINE float before(float slope, float bent, float leak) {
    return bent <= 0.0f ? (leak > 0.0f ? slope * leak : 0.0f) : slope;
}

// Where y is given, the slopes before the bend, which are those of the residual.
template <int V, int U>
INLINE void shut(const Backward &of, Pack<Format, V> *slopes, const Place &at, u32 done) {
    Pack<Format, V> made[U], more[U];
    fetch(made, of.y, at, done);
    if (of.second) fetch(more, of.second, at, done);
#pragma unroll
    for (int u = 0; u < U; u++)
        if (done + u < at.left) {
            if (of.second)
#pragma unroll
                for (int i = 0; i < V; i++)
                    slopes[u].raw[i] = Format::put(Format::get(slopes[u].raw[i]) + Format::get(more[u].raw[i]));
#pragma unroll
            for (int i = 0; i < V; i++)
                if (Format::get(made[u].raw[i]) <= 0.0f)
                    slopes[u].raw[i] = of.leak > 0.0f ? Format::put(Format::get(slopes[u].raw[i]) * of.leak) : Raw(0);
            keep(of.dresidual, slopes[u], at, done + u);
        }
}

// The slopes with their second part.
template <int V, int U>
INLINE void add_second(const Backward &of, Pack<Format, V> *slopes, const Place &at, u32 done) {
    Pack<Format, V> more[U];
    fetch(more, of.second, at, done);
#pragma unroll
    for (int u = 0; u < U; u++)
        if (done + u < at.left) {
#pragma unroll
            for (int i = 0; i < V; i++)
                slopes[u].raw[i] = Format::put(Format::get(slopes[u].raw[i]) + Format::get(more[u].raw[i]));
            keep(of.dresidual, slopes[u], at, done + u);
        }
}

// A slope of what was normalised.
template <int S, bool SHUT>
INLINE float slope_at(const Backward &of, Raw slope, Raw x, const By<S> &by, int i) {
    float value = Format::get(slope);
    return of.bent && !SHUT ? before(value, by.norm(x, i), of.leak) : value;
}

// The sums of slopes, and of slopes times what x is above the mean's first part. The last packs that were read stay.
template <int V, int S, int U, bool WHOLE, bool SHUT>
INLINE void weigh(
    const Backward &of, Pack<Format, V> (&slopes)[U], Pack<Format, V> (&packs)[U], Desk<S> &desk, const Place &at
) {
    By<S> by = By<S>::of(desk, at);
    float sums[2][S] = {};
    for (u32 done = 0; done < at.left; done += U) {
        fetch(slopes, of.dy, at, done);
        fetch(packs, of.x, at, done);
        if (SHUT)
#pragma unroll
            for (int u = 0; u < U; u += AHEAD_OF_EACH) shut<V, AHEAD_OF_EACH>(of, slopes + u, at, done + u);
        else if (of.second)
#pragma unroll
            for (int u = 0; u < U; u += AHEAD_OF_EACH) add_second<V, AHEAD_OF_EACH>(of, slopes + u, at, done + u);
#pragma unroll
        for (int u = 0; u < U; u++)
            if (done + u < at.left)
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float slope = slope_at<S, SHUT>(of, slopes[u].raw[i], packs[u].raw[i], by, i);
                    sums[0][i % S] += slope;
                    sums[1][i % S] = __fmaf_rn(slope, Format::get(packs[u].raw[i]) - by.mean[i % S], sums[1][i % S]);
                }
        if (WHOLE) break;
    }
    total<V>(sums, desk.totals, desk, at, of.shape);
}

// Ends the sums of a channel.
INLINE void conclude(const Backward &of, u32 channel, float sum, float along) {
    u32 all = of.shape.channels;
    of.dgain[channel] = of.saved[2 * all + channel] * (along - of.saved[all + channel] * sum);
    of.dbias[channel] = sum;
}

// Coefficients of the group's channels: dx = (x - vectors[0])·vectors[3] + dy·vectors[1] + vectors[4].
template <int S>
INLINE void coefficients(const Backward &of, Desk<S> &desk, u32 group) {
    if (threadIdx.x < of.shape.group) {
        u32 all = of.shape.channels, channel = threadIdx.x, place = group * of.shape.group + channel;
        float rest = of.saved[all + place], inverse = of.saved[2 * all + place], scale = desk.vectors[1][channel];
        float count = values_of_all(of.shape);
        float steep = -(scale * inverse * (of.dgain[place] / count));
        desk.vectors[3][channel] = steep;
        desk.vectors[4][channel] = -(scale * (of.dbias[place] / count)) - steep * rest;
    }
    __syncthreads();
}

template <int V, int S, int U, bool SHUT>
INLINE void slope(
    const Backward &of, const Pack<Format, V> (&slopes)[U], const Pack<Format, V> (&packs)[U], const By<S> &by,
    const Desk<S> &desk, const Place &at, u32 done
) {
    float steep[S], level[S];
    pick(steep, desk.vectors[3], at);
    pick(level, desk.vectors[4], at);
#pragma unroll
    for (int u = 0; u < U; u++)
        if (done + u < at.left) {
            Pack<Format, V> made;
#pragma unroll
            for (int i = 0; i < V; i++) {
                float bent = slope_at<S, SHUT>(of, slopes[u].raw[i], packs[u].raw[i], by, i);
                float straight = __fmaf_rn(bent, by.scale[i % S], level[i % S]);
                float apart = Format::get(packs[u].raw[i]) - by.mean[i % S];
                made.raw[i] = Format::put(__fmaf_rn(apart, steep[i % S], straight));
            }
            keep(of.dx, made, at, done + u);
        }
}

// The sums of a part of the values. With y, dresidual gets the gradient of the residual; without, the sum of both parts of dy.
template <int V, int S, bool SHUT>
INLINE void back_sums_of(const Backward &of) {
    __shared__ Desk<S> desk;
    const Shape &shape = of.shape;
    u32 part = blockIdx.x, group = blockIdx.y;
    recall(desk, shape, group, of.saved, of.gain, of.bias);
    Place at = place<V>(shape, part, group);
    Pack<Format, V> slopes[AHEAD_OF_EACH], packs[AHEAD_OF_EACH];
    weigh<V, S, AHEAD_OF_EACH, false, SHUT>(of, slopes, packs, desk, at);
    if (threadIdx.x < shape.group) {
        u64 channel = group * shape.group + threadIdx.x, all = u64(shape.channels) * shape.parts;
#pragma unroll
        for (int n = 0; n < 2; n++) of.parts[n * all + channel * shape.parts + part] = desk.totals[n][threadIdx.x];
    }
}

template <int V, int S>
INLINE void back_sums(const Backward &of) { of.bent && of.y ? back_sums_of<V, S, true>(of) : back_sums_of<V, S, false>(of); }

// The gradients of gain and bias of a channel from the sums of all parts, by a warp.
INLINE void back_join(const Backward &of) {
    const Shape &shape = of.shape;
    u32 channel = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (channel >= shape.channels) return;
    const float *sums = of.parts + u64(channel) * shape.parts, *alongs = sums + u64(shape.channels) * shape.parts;
    float sum = 0.0f, along = 0.0f;
    for (u32 i = lane; i < shape.parts; i += 32) {
        sum += sums[i];
        along += alongs[i];
    }
    sum = warp_sum(sum);
    along = warp_sum(along);
    if (lane == 0) conclude(of, channel, sum, along);
}

// The gradient of x from those of gain and bias.
template <int V, int S>
INLINE void back_apply(const Backward &of) {
    __shared__ Desk<S> desk;
    const Shape &shape = of.shape;
    u32 part = gridDim.x - 1 - blockIdx.x, group = gridDim.y - 1 - blockIdx.y;
    Place at = place<V>(shape, part, group);
    Pack<Format, V> slopes[AHEAD_OF_EACH], packs[AHEAD_OF_EACH];
    fetch(slopes, of.dy, at, 0);
    fetch(packs, of.x, at, 0);
    recall(desk, shape, group, of.saved, of.gain, of.bias);
    coefficients(of, desk, group);
    By<S> by = By<S>::of(desk, at);
    for (u32 done = 0; done < at.left; done += AHEAD_OF_EACH) {
        if (done > 0) {
            fetch(slopes, of.dy, at, done);
            fetch(packs, of.x, at, done);
        }
        slope<V, S, AHEAD_OF_EACH, false>(of, slopes, packs, by, desk, at, done);
    }
}

// All gradients at once, where a block has all values of its group and its threads can keep them.
template <int V, int S, int U, bool SHUT>
INLINE void back_whole_of(const Backward &of) {
    __shared__ Desk<S> desk;
    recall(desk, of.shape, blockIdx.y, of.saved, of.gain, of.bias);
    Place at = place<V>(of.shape, 0, blockIdx.y);
    Pack<Format, V> slopes[U], packs[U];
    weigh<V, S, U, true, SHUT>(of, slopes, packs, desk, at);
    if (threadIdx.x < of.shape.group) {
        u32 channel = threadIdx.x;
        conclude(of, blockIdx.y * of.shape.group + channel, desk.totals[0][channel], desk.totals[1][channel]);
    }
    coefficients(of, desk, blockIdx.y);
    slope<V, S, U, SHUT>(of, slopes, packs, By<S>::of(desk, at), desk, at, 0);
}

template <int V, int S, int U>
INLINE void back_whole(const Backward &of) { of.bent && of.y ? back_whole_of<V, S, U, true>(of) : back_whole_of<V, S, U, false>(of); }

#ifndef NHWC
KERNEL(THREADS, 2) batch_back_sums(Backward of) { of.packed ? back_sums<PACK, 1>(of) : back_sums<1, 1>(of); }
KERNEL(THREADS, 2) batch_back_apply(Backward of) { of.packed ? back_apply<PACK, 1>(of) : back_apply<1, 1>(of); }
KERNEL(THREADS, 1) batch_back_whole(Backward of) { of.packed ? back_whole<PACK, 1, KEPT>(of) : back_whole<1, 1, KEPT>(of); }
KERNEL(THREADS, 1) batch_back_whole_split(Backward of) { back_whole<PACK, PACK, KEPT_SPLIT>(of); }
#endif
KERNEL(SPLIT_THREADS, 2) batch_back_sums_split(Backward of) { back_sums<PACK, PACK>(of); }
KERNEL(SPLIT_THREADS, 2) batch_back_apply_split(Backward of) { back_apply<PACK, PACK>(of); }
KERNEL(SPLIT_THREADS, 3) batch_back_join(Backward of) { back_join(of); }
