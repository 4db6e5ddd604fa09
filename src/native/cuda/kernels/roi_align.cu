// RoIAlign (He et al. 2017, "Mask R-CNN", section 3) over several levels of features: regions of pictures as bins of one size,
// and its backward. `Format` is that of the features, `PACK` as many of them as are read at once.
//
// A bin is the mean of two by two samples, and a sample lies between the four cells around it. Weights of rows and columns
// are apart from each other: a bin is what the weights of its four rows and of its four columns make of the cells where they
// meet.

#define INLINE static __device__ __forceinline__
#define LEVELS 4
// Bins along an axis at most, and what they take along it: two samples of two cells each.
#define LONGEST 16
#define TAPS 4
#define THREADS 256

typedef Format::Raw Raw;

struct Level {
    Raw *map;
    u32 height, width;
    // Cells of a pixel, and tiles of an image.
    float scale;
    u32 tiles;
};

// A region that touches a level: which one, and the first and the last row (in halves of a word) and column.
struct __align__(16) Entry {
    u32 region, rows, columns, unused;
};

struct Align {
    Level levels[LEVELS];
    // [count, 6]: the row of the batch, the level, the left, upper, right and lower edge in pixels.
    const float *regions;
    // [count, channels, side, side]: the answer, or its gradient.
    Raw *bins;
    // For each row of the batch and level the regions that touch it, in their order, and how many.
    Entry *entries;
    u32 *counts;
    // Channels of the forward's blocks are `chunk`.
    u32 count, rows, channels, side, chunk, depth, packed;
};

// Where a region begins, and how large a bin is, downwards and along, in cells.
struct Region {
    u32 row, level;
    float start[2], bin[2];
};

// Whether a region is one of this batch.
INLINE bool find(const Align &of, u32 n, Region &found) {
    const float *region = of.regions + u64(n) * 6;
    float row = region[0], level = region[1];
    // What is no number neither.
    if (!(row >= 0.0f && row < __uint2float_rn(of.rows) && level >= 0.0f && level < __uint2float_rn(of.depth))) return false;
    found.row = u32(row);
    found.level = u32(level);
    float scale = of.levels[found.level].scale;
#pragma unroll
    for (int axis = 0; axis < 2; axis++) {
        float start = region[3 - axis] * scale, end = region[5 - axis] * scale;
        found.start[axis] = start;
        found.bin[axis] = fmaxf(end - start, 1.0f) / __uint2float_rn(of.side);
    }
    return true;
}

// Where a sample is along an axis.
INLINE float spot(const Region &region, int axis, u32 sample) {
    float start = axis ? region.start[1] : region.start[0], bin = axis ? region.bin[1] : region.bin[0];
    return start + __uint2float_rn(sample / 2) * bin + (__uint2float_rn(sample % 2) + 0.5f) * bin / 2.0f;
}

// The cell before a sample, and half the shares of that and of the next one: a bin has two samples along an axis.
struct Tap {
    u32 low;
    float near, far;
};

INLINE Tap tap(float at, u32 length) {
    Tap found = {0, 0.0f, 0.0f};
    // Further than a cell beyond the border there is nothing.
    if (!(at >= -1.0f && at <= __uint2float_rn(length))) return found;
    at = fmaxf(at, 0.0f);
    found.low = u32(at);
    if (found.low + 1 >= length) {
        found.low = length - 1;
        found.near = 0.5f;
    } else {
        float far = at - __uint2float_rn(found.low);
        found.near = 0.5f * (1.0f - far);
        found.far = 0.5f * far;
    }
    return found;
}

// Makes each of four lanes have one of four sums over them: of the value of its place.
INLINE float sum_of_four(const float (&values)[4], u32 lane) {
    bool odd = lane & 1, high = lane & 2;
    float first = (odd ? values[1] : values[0]) + __shfl_xor_sync(0xffffffffu, odd ? values[0] : values[1], 1);
    float second = (odd ? values[3] : values[2]) + __shfl_xor_sync(0xffffffffu, odd ? values[2] : values[3], 1);
    return (high ? second : first) + __shfl_xor_sync(0xffffffffu, high ? first : second, 2);
}

// A block has some channels of one region; a warp at a time four of them, and eight bins of each row: a lane has one of the
// four columns of cells that a bin is made of.
INLINE void align(const Align &of) {
    __shared__ u32 places[2][LONGEST * TAPS];
    __shared__ float shares[2][LONGEST * TAPS];
    __shared__ __align__(16) Raw made[LONGEST * LONGEST * 16];
    u32 first = blockIdx.y * of.chunk, channels = min(of.chunk, of.channels - first);
    u32 bins = of.side * of.side, all = channels * bins, lane = threadIdx.x % 32;
    Raw *to = of.bins + (u64(blockIdx.x) * of.channels + first) * bins;
    Region region;
    bool there = find(of, blockIdx.x, region);
    const Level &level = of.levels[there ? region.level : 0];
    if (there && threadIdx.x < LONGEST * TAPS) {
        u32 axis = threadIdx.x / (LONGEST * 2), sample = threadIdx.x % (LONGEST * 2);
        u32 length = axis ? level.width : level.height, step = axis ? 1 : level.width;
        Tap found = {0, 0.0f, 0.0f};
        if (sample < of.side * 2) found = tap(spot(region, axis, sample), length);
        places[axis][sample * 2] = found.low * step;
        places[axis][sample * 2 + 1] = min(found.low + 1, length - 1) * step;
        shares[axis][sample * 2] = found.near;
        shares[axis][sample * 2 + 1] = found.far;
    }
    __syncthreads();
    u32 groups = (of.side + 7) / 8, work = there ? (channels + 3) / 4 * groups : 0;
    for (u32 task = threadIdx.x / 32; task < work; task += THREADS / 32) {
        u32 channel = task / groups * 4, group = task % groups, plane = level.height * level.width;
        u32 many = min(channels - channel, 4), column = group * 8 + lane / 4;
        const Raw *map = level.map + (u64(region.row) * of.channels + first + channel) * plane + places[1][group * 32 + lane];
        float along = shares[1][group * 32 + lane];
#pragma unroll 2
        for (u32 row = 0; row < of.side; row++) {
            float values[4] = {};
#pragma unroll
            for (int i = 0; i < TAPS; i++) {
                u32 place = places[0][row * TAPS + i];
                float share = shares[0][row * TAPS + i];
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (k < many) values[k] = __fmaf_rn(share, Format::get(map[u64(k) * plane + place]), values[k]);
            }
#pragma unroll
            for (int k = 0; k < 4; k++) values[k] *= along;
            float sum = sum_of_four(values, lane);
            if (column < of.side && lane % 4 < many)
                made[(channel + lane % 4) * bins + row * of.side + column] = Format::put(sum);
        }
    }
    if (!there)
        for (u32 i = threadIdx.x; i < all; i += THREADS) made[i] = Format::put(0.0f);
    __syncthreads();
    if (of.packed)
        for (u32 i = threadIdx.x * PACK; i < all; i += THREADS * PACK)
            *reinterpret_cast<Pack<Format, PACK> *>(to + i) = *reinterpret_cast<const Pack<Format, PACK> *>(made + i);
    else
        for (u32 i = threadIdx.x; i < all; i += THREADS) to[i] = made[i];
}

// With blocks of so many threads, and at least so many at once on a processor.
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)

KERNEL(THREADS, 4) roi_align(const __grid_constant__ Align of) { align(of); }
