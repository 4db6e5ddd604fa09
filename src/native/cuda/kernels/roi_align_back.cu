// The backward of RoIAlign. A block has a tile of a level in some channels, to which it adds what each region that touches
// it gives, in the order of the regions.

#define TILE 16
#define CHANNELS 16
#define SORTERS 1024

// The first and the last cell that samples of a region may have shares in, along an axis.
INLINE bool reach(const Align &of, const Region &region, int axis, u32 length, u32 &halves) {
    float first = spot(region, axis, 0), last = spot(region, axis, of.side * 2 - 1), end = __uint2float_rn(length - 1);
    // What is no number reaches nothing.
    if (!(last >= -1.0f && first <= __uint2float_rn(length))) return false;
    u32 low = first >= end ? length - 1 : u32(fmaxf(first, 0.0f));
    u32 high = last >= end ? length - 1 : min(u32(fmaxf(last, 0.0f)) + 1, length - 1);
    halves = low | high << 16;
    return true;
}

// The place of a thread among those that have something, and how many these are. All threads of the block take part.
INLINE u32 place_among(bool has, u32 *sums, u32 &all) {
    u32 votes = __ballot_sync(0xffffffffu, has), warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) sums[warp] = __popc(votes);
    __syncthreads();
    u32 before = __popc(votes & ((1u << threadIdx.x % 32) - 1));
    all = 0;
    for (u32 i = 0; i < blockDim.x / 32; i++) {
        if (i < warp) before += sums[i];
        all += sums[i];
    }
    __syncthreads();
    return before;
}

// The regions that touch a level of a row.
INLINE void lists(const Align &of) {
    __shared__ u32 sums[SORTERS / 32];
    u32 list = blockIdx.x * LEVELS + blockIdx.y, total = 0;
    const Level &level = of.levels[blockIdx.y];
    for (u32 start = 0; start < of.count; start += blockDim.x) {
        u32 n = start + threadIdx.x;
        Region region;
        Entry entry = {n, 0, 0, 0};
        bool has = n < of.count && find(of, n, region) && region.row == blockIdx.x && region.level == blockIdx.y &&
            reach(of, region, 0, level.height, entry.rows) && reach(of, region, 1, level.width, entry.columns);
        u32 all, place = place_among(has, sums, all);
        if (has) of.entries[u64(list) * of.count + total + place] = entry;
        total += all;
    }
    if (threadIdx.x == 0) of.counts[list] = total;
}

// What a block shares: for up to `M` bins along an axis, of `H` regions at a time.
template <int M, int H>
struct Desk {
    __align__(16) float slopes[H][CHANNELS * M * M];
    // The weight of each bin on each row and column of the tile.
    __align__(16) float weights[H][2][M][TILE];
    // By column, the bins that weigh on it; four bits for each bin, of the quarters of the tile's rows that it weighs on.
    u32 bins[H][TILE], quarters[H][M / 8];
    u32 regions[THREADS], sums[THREADS / 32];
};

// Where a block's tile is.
struct Tile {
    u32 level, row, top, left, first, channels;
};

INLINE Tile tile(const Align &of) {
    Tile found;
    u32 block = blockIdx.x, level = of.depth - 1;
    // Coarse levels first: more regions touch their tiles.
    while (level > 0 && block >= of.levels[level].tiles * of.rows) block -= of.levels[level--].tiles * of.rows;
    u32 tiles = of.levels[level].tiles, across = (of.levels[level].width + TILE - 1) / TILE;
    found.level = level;
    found.row = block / tiles;
    found.top = block % tiles / across * TILE;
    found.left = block % tiles % across * TILE;
    found.first = blockIdx.y * CHANNELS;
    found.channels = min(of.channels - found.first, CHANNELS);
    return found;
}

// Reads the slopes of some regions, and clears the weights.
template <int M, int H>
INLINE void stage(const Align &of, Desk<M, H> &desk, const Tile &at, u32 from, u32 many) {
    const u32 team = THREADS / H;
    u32 bins = of.side * of.side, all = at.channels * bins, k = threadIdx.x / team, member = threadIdx.x % team;
    float *weights = &desk.weights[0][0][0][0];
    for (u32 i = threadIdx.x * 4; i < H * 2 * M * TILE; i += THREADS * 4) {
        const float none[4] = {};
        store<F32>(weights + i, none);
    }
    if (threadIdx.x < H * TILE) desk.bins[threadIdx.x / TILE][threadIdx.x % TILE] = 0;
    if (threadIdx.x < H * (M / 8)) desk.quarters[threadIdx.x / (M / 8)][threadIdx.x % (M / 8)] = 0;
    if (k >= many) return;
    const Raw *slopes = of.bins + (u64(desk.regions[from + k]) * of.channels + at.first) * bins;
    if (of.packed)
        for (u32 i = member * PACK; i < all; i += team * PACK) {
            float values[PACK];
            load<Format>(values, slopes + i);
#pragma unroll
            for (int j = 0; j < PACK; j += 4) {
                float four[4] = {values[j], values[j + 1], values[j + 2], values[j + 3]};
                store<F32>(desk.slopes[k] + i + j, four);
            }
        }
    else
        for (u32 i = member; i < all; i += team) desk.slopes[k][i] = Format::get(slopes[i]);
}

// Adds the weight of a sample on a cell; tells whether that is in the tile.
INLINE bool weigh(float *weights, u32 cell, float share) {
    bool in = cell < TILE && share != 0.0f;
    if (in) weights[cell] += share;
    return in;
}

// The weights of the bins of some regions: a thread has one bin of one axis.
template <int M, int H>
INLINE void weights(const Align &of, Desk<M, H> &desk, const Tile &at, u32 from, u32 many) {
    u32 k = threadIdx.x / (2 * M), axis = threadIdx.x / M % 2, bin = threadIdx.x % M;
    if (k >= many || bin >= of.side) return;
    Region region;
    find(of, desk.regions[from + k], region);
    const Level &level = of.levels[at.level];
    u32 length = axis ? level.width : level.height, origin = axis ? at.left : at.top, quarters = 0;
    float *weights = desk.weights[k][axis][bin];
    for (u32 sample = bin * 2; sample < bin * 2 + 2; sample++) {
        Tap found = tap(spot(region, axis, sample), length);
#pragma unroll
        for (u32 next = 0; next < 2; next++) {
            // Before the tile it wraps round to a large number.
            u32 cell = found.low + next - origin;
            if (!weigh(weights, cell, next ? found.far : found.near)) continue;
            if (axis) atomicOr(&desk.bins[k][cell], 1u << bin);
            else quarters |= 1u << cell / 4;
        }
    }
    if (quarters) atomicOr(&desk.quarters[k][bin / 8], quarters << bin % 8 * 4);
}

// Adds what a region gives to a column of the tile in one channel.
template <int M, int H>
INLINE void gather(const Align &of, const Desk<M, H> &desk, float (&sums)[TILE], u32 k) {
    u32 column = threadIdx.x % TILE;
    const float *slopes = desk.slopes[k] + threadIdx.x / TILE * of.side * of.side;
    u32 quarters[M / 8];
#pragma unroll
    for (int i = 0; i < M / 8; i++) quarters[i] = desk.quarters[k][i];
    float rows[M] = {};
    for (u32 left = desk.bins[k][column]; left; left &= left - 1) {
        u32 bin = __ffs(left) - 1;
        float weight = desk.weights[k][1][bin][column];
#pragma unroll
        for (int row = 0; row < M; row++)
            if (quarters[row / 8] >> row % 8 * 4 & 15u) rows[row] = __fmaf_rn(weight, slopes[row * of.side + bin], rows[row]);
    }
#pragma unroll
    for (int row = 0; row < M; row++)
#pragma unroll
        for (int i = 0; i < TILE; i += 4)
            if (quarters[row / 8] >> (row % 8 * 4 + i / 4) & 1u) {
                float weights[4];
                load<F32>(weights, desk.weights[k][0][row] + i);
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i + j] = __fmaf_rn(weights[j], rows[row], sums[i + j]);
            }
}

template <int M, int H>
INLINE void align_back(const Align &of) {
    __shared__ Desk<M, H> desk;
    Tile at = tile(of);
    const Level &level = of.levels[at.level];
    u32 list = at.row * LEVELS + at.level, count = of.counts[list];
    const Entry *entries = of.entries + u64(list) * of.count;
    float sums[TILE] = {};
    for (u32 start = 0; start < count; start += THREADS) {
        bool has = false;
        Entry entry;
        if (start + threadIdx.x < count) {
            entry = entries[start + threadIdx.x];
            has = (entry.rows & 0xffffu) < at.top + TILE && entry.rows >> 16 >= at.top &&
                (entry.columns & 0xffffu) < at.left + TILE && entry.columns >> 16 >= at.left;
        }
        u32 found, place = place_among(has, desk.sums, found);
        if (has) desk.regions[place] = entry.region;
        __syncthreads();
        for (u32 from = 0; from < found; from += H) {
            u32 many = min(found - from, H);
            stage(of, desk, at, from, many);
            __syncthreads();
            weights(of, desk, at, from, many);
            __syncthreads();
            for (u32 k = 0; k < many; k++) gather(of, desk, sums, k);
            __syncthreads();
        }
    }
    u32 column = at.left + threadIdx.x % TILE, channel = threadIdx.x / TILE;
    if (column >= level.width || channel >= at.channels) return;
    Raw *to = level.map + (u64(at.row) * of.channels + at.first + channel) * level.height * level.width + column;
#pragma unroll
    for (u32 i = 0; i < TILE; i++)
        if (at.top + i < level.height) to[(at.top + i) * level.width] = Format::put(sums[i]);
}

KERNEL(SORTERS) roi_lists(const __grid_constant__ Align of) { lists(of); }
KERNEL(THREADS, 4) roi_align_back_8(const __grid_constant__ Align of) { align_back<8, 4>(of); }
KERNEL(THREADS, 3) roi_align_back_16(const __grid_constant__ Align of) { align_back<16, 2>(of); }
