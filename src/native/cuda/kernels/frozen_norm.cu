// The gradients of a normalisation by statistics that stay as they are: of what was normalised, dx = before(dy)·gain/deviation,
// and of a residual in the sum that was bent, before(dy).

struct Frozen {
    // y is given where something was bent.
    const Raw *dy, *y;
    Raw *dx, *dresidual;
    const float *gain, *variance;
    Shape shape;
    float epsilon, leak;
    u32 packed;
};

template <int V, int S>
INLINE void frozen(const Frozen &of) {
    __shared__ float scales[GROUP];
    if (threadIdx.x < of.shape.group) {
        u32 place = blockIdx.y * of.shape.group + threadIdx.x;
        scales[threadIdx.x] = 1.0f / sqrtf(of.variance[place] + of.epsilon) * of.gain[place];
    }
    __syncthreads();
    Place at = place<V>(of.shape, blockIdx.x, blockIdx.y);
    float scale[S];
    pick(scale, scales, at);
    Pack<Format, V> slopes[AHEAD_OF_EACH], made[AHEAD_OF_EACH];
    for (u32 done = 0; done < at.left; done += AHEAD_OF_EACH) {
        fetch(slopes, of.dy, at, done);
        if (of.y) fetch(made, of.y, at, done);
#pragma unroll
        for (int u = 0; u < AHEAD_OF_EACH; u++)
            if (done + u < at.left) {
                Pack<Format, V> dx;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    float slope = Format::get(slopes[u].raw[i]);
                    if (of.y) slope = before(slope, Format::get(made[u].raw[i]), of.leak);
                    slopes[u].raw[i] = Format::put(slope);
                    dx.raw[i] = Format::put(slope * scale[i % S]);
                }
                keep(of.dx, dx, at, done + u);
                if (of.dresidual) keep(of.dresidual, slopes[u], at, done + u);
            }
    }
}

KERNEL(THREADS, 2) frozen_back(Frozen of) { of.packed ? frozen<PACK, 1>(of) : frozen<1, 1>(of); }
KERNEL(SPLIT_THREADS, 3) frozen_back_split(Frozen of) { frozen<PACK, PACK>(of); }
