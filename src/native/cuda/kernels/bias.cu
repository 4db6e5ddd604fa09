// A value for each channel of images, added with what follows it: y = x + bias, or its rectifier; and the gradients.

struct Biased {
    // What it is added to, or the slopes of the sum; and for these what was rectified, if anything was.
    const Raw *x, *y;
    // Not there where the slopes stay as they are.
    Raw *made;
    const float *bias;
    // Sums [channels, parts].
    float *parts;
    Shape shape;
    u32 rectified, packed;
};

template <int V, int S>
INLINE void add_bias(const Biased &of) {
    __shared__ float biases[GROUP];
    if (threadIdx.x < of.shape.group) biases[threadIdx.x] = of.bias[blockIdx.y * of.shape.group + threadIdx.x];
    __syncthreads();
    Place at = place<V>(of.shape, blockIdx.x, blockIdx.y);
    float bias[S];
    pick(bias, biases, at);
    Pack<Format, V> packs[AHEAD];
    for (u32 done = 0; done < at.left; done += AHEAD) {
        fetch(packs, of.x, at, done);
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (done + u < at.left) {
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float value = Format::get(packs[u].raw[i]) + bias[i % S];
                    packs[u].raw[i] = Format::put(of.rectified ? bend(value, 0.0f) : value);
                }
                keep(of.made, packs[u], at, done + u);
            }
    }
}

// The slopes before the rectifier, and of each channel the sum of a part of them.
template <int V, int S>
INLINE void add_bias_back(const Biased &of) {
    __shared__ Desk<S> desk;
    const Shape &shape = of.shape;
    u32 part = blockIdx.x, group = blockIdx.y;
    Place at = place<V>(shape, part, group);
    float sums[1][S] = {};
    Pack<Format, V> slopes[AHEAD_OF_EACH], made[AHEAD_OF_EACH];
    for (u32 done = 0; done < at.left; done += AHEAD_OF_EACH) {
        fetch(slopes, of.x, at, done);
        if (of.y) fetch(made, of.y, at, done);
#pragma unroll
        for (int u = 0; u < AHEAD_OF_EACH; u++)
            if (done + u < at.left) {
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float slope = Format::get(slopes[u].raw[i]);
                    if (of.y) slope = before(slope, Format::get(made[u].raw[i]), 0.0f);
                    slopes[u].raw[i] = Format::put(slope);
                    sums[0][i % S] += slope;
                }
                if (of.made) keep(of.made, slopes[u], at, done + u);
            }
    }
    total<V>(sums, desk.totals, desk, at, shape);
    if (threadIdx.x < shape.group) {
        u64 channel = group * shape.group + threadIdx.x;
        of.parts[channel * shape.parts + part] = desk.totals[0][threadIdx.x];
    }
}

KERNEL(THREADS, 2) bias_add(Biased of) { of.packed ? add_bias<PACK, 1>(of) : add_bias<1, 1>(of); }
KERNEL(SPLIT_THREADS, 3) bias_add_split(Biased of) { add_bias<PACK, PACK>(of); }
KERNEL(THREADS, 2) bias_back(Biased of) { of.packed ? add_bias_back<PACK, 1>(of) : add_bias_back<1, 1>(of); }
KERNEL(SPLIT_THREADS, 3) bias_back_split(Biased of) { add_bias_back<PACK, PACK>(of); }

// The sum of a channel's parts, by a warp.
KERNEL(THREADS, 2) bias_total(const float *parts, float *totals, u32 channels, u32 count) {
    u32 channel = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (channel >= channels) return;
    float sum = 0.0f;
    for (u32 i = threadIdx.x % 32; i < count; i += 32) sum += parts[u64(channel) * count + i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) totals[channel] = sum;
}
