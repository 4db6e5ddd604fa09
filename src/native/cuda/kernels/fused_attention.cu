// Attention whose scores stay in registers (Dao 2023, FlashAttention-2), and its backward, by tensor cores. Every sum has one order.
// A head has 64 features. A token has queries, keys and values side by side: [rows * width, 3, heads, 64].
// A block of four warps has 64 queries, or in the gradient of keys and values 64 keys, and a warp 16 of them.

#define HEAD 64
#define TILE 64
#define THREADS 128
// 1 / sqrt(HEAD).
#define SCALE 0.125f

typedef Format::Raw Raw;

struct Attention {
    u32 width;
    u32 heads;
    u32 causal;
    // Factor of scores before powers of two are taken: log2(e) / sqrt(HEAD).
    float scale;
    u32 drops;
    u32 key;
    float threshold;
    float factor;
};

// One head of one sequence: where its parts of a tensor begin, and how far apart tokens are.
struct Head {
    u64 token;
    u32 part;
    u32 apart;
    u32 offset;

    __device__ Head(const Attention &of, u32 index) {
        token = u64(index / of.heads) * of.width;
        part = of.heads * HEAD;
        offset = index % of.heads * HEAD;
        apart = 3 * part;
    }
    // Queries, keys and values are parts 0, 1 and 2.
    template <class T> __device__ T *of(T *qkv, u32 which) const { return qkv + token * apart + which * part + offset; }
    template <class T> __device__ T *joined(T *x) const { return x + token * part + offset; }
};

static __device__ __forceinline__ u32 address(const void *shared) { return u32(__cvta_generic_to_shared(shared)); }

// Where eight features of a row lie in a tile: the rows of a matrix of 8 x 8 lie in different banks.
static __device__ __forceinline__ u32 place(u32 row, u32 eighth) { return row * HEAD + ((eighth ^ (row & 7)) << 3); }

// Begins to copy a tile; rows behind the end become zeros.
static __device__ __forceinline__ void fetch(Raw *tile, const Raw *from, u32 first, u32 width, u32 apart) {
#pragma unroll
    for (u32 n = threadIdx.x; n < TILE * 8; n += THREADS) {
        u32 row = n >> 3, eighth = n & 7, token = first + row;
        const Raw *source = from + u64(token < width ? token : 0) * apart + eighth * 8;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     ::"r"(address(tile + place(row, eighth))), "l"(source), "r"(token < width ? 16 : 0) : "memory");
    }
}

// Begins to copy the n-th of 64 values of four bytes, or a zero.
static __device__ __forceinline__ void fetch_row(void *to, const void *from, u32 n, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 ::"r"(address(to) + n * 4), "l"(reinterpret_cast<const char *>(from) + (there ? n * 4 : 0)), "r"(there ? 4 : 0) : "memory");
}

static __device__ __forceinline__ void begun() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the newest N groups of copies are on the way, then for the block.
template <int N>
static __device__ __forceinline__ void arrived() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
    __syncthreads();
}

static __device__ __forceinline__ void matrices(u32 (&to)[4], const Raw *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address(row)) : "memory");
}

static __device__ __forceinline__ void matrices_turned(u32 (&to)[4], const Raw *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address(row)) : "memory");
}

// 16 rows of a tile from `first`, as the left factor of products: one fragment for each 16 features.
static __device__ __forceinline__ void left(u32 (&to)[4][4], const Raw *tile, u32 first) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 s = 0; s < 4; s++) matrices(to[s], tile + place(first + lane % 16, 2 * s + lane / 16));
}

// 16 rows from `first`, 16 features: the right factor of a product with the tile's transpose.
static __device__ __forceinline__ void right_turned(u32 (&to)[4], const Raw *tile, u32 first, u32 sixteenth) {
    u32 lane = threadIdx.x % 32;
    matrices(to, tile + place(first + lane % 8 + lane / 16 * 8, 2 * sixteenth + lane / 8 % 2));
}

// The same 16 x 16 values as the right factor of a product with the tile itself.
static __device__ __forceinline__ void right(u32 (&to)[4], const Raw *tile, u32 first, u32 sixteenth) {
    u32 lane = threadIdx.x % 32;
    matrices_turned(to, tile + place(first + lane % 8 + lane / 8 % 2 * 8, 2 * sixteenth + lane / 16));
}

#define MULTIPLY(T, NAME) \
    static __device__ __forceinline__ void multiply(T, float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
    } \
    static __device__ __forceinline__ u32 both(T, float low, float high) { \
        u32 pair; \
        asm("cvt.rn." NAME "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)); \
        return pair; \
    }
MULTIPLY(F16, "f16")
MULTIPLY(Bf16, "bf16")

static __device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// c += a times the transpose of 8 * N rows of a tile, from `first`.
template <int N>
static __device__ __forceinline__ void times_turned(float (&c)[N][4], const u32 (&a)[4][4], const Raw *tile, u32 first) {
#pragma unroll
    for (u32 s = 0; s < 4; s++) {
#pragma unroll
        for (u32 j = 0; j < N / 2; j++) {
            u32 b[4];
            right_turned(b, tile, first + 16 * j, s);
            multiply(Format(), c[2 * j], a[s], b[0], b[1]);
            multiply(Format(), c[2 * j + 1], a[s], b[2], b[3]);
        }
    }
}

// c += p times 8 * N rows of a tile, from `first`; p is rounded to the format.
template <int N>
static __device__ __forceinline__ void times(float (&c)[8][4], const float (&p)[N][4], const Raw *tile, u32 first) {
#pragma unroll
    for (u32 s = 0; s < N / 2; s++) {
        const float (&l)[4] = p[2 * s], (&r)[4] = p[2 * s + 1];
        u32 a[4] = {both(Format(), l[0], l[1]), both(Format(), l[2], l[3]), both(Format(), r[0], r[1]), both(Format(), r[2], r[3])};
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 b[4];
            right(b, tile, first + 16 * s, j);
            multiply(Format(), c[2 * j], a, b[0], b[1]);
            multiply(Format(), c[2 * j + 1], a, b[2], b[3]);
        }
    }
}

template <int N>
static __device__ __forceinline__ void clear(float (&c)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) c[n][i] = 0.0f;
}

// Writes a warp's 16 rows, each times its factor, through its rows of a tile that is no longer in use.
static __device__ __forceinline__ void put(
    Raw *to, const float (&c)[8][4], float low, float high, Raw *tile, u32 first, u32 width, u32 apart
) {
    u32 lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16, row = own + lane / 4, inside = lane % 4 * 2;
#pragma unroll
    for (u32 n = 0; n < 8; n++) {
        *reinterpret_cast<u32 *>(tile + place(row, n) + inside) = both(Format(), c[n][0] * low, c[n][1] * low);
        *reinterpret_cast<u32 *>(tile + place(row + 8, n) + inside) = both(Format(), c[n][2] * high, c[n][3] * high);
    }
    __syncwarp();
#pragma unroll
    for (u32 n = lane; n < 16 * 8; n += 32) {
        u32 row = own + n / 8, token = first + row;
        if (token < width)
            *reinterpret_cast<uint4 *>(to + u64(token) * apart + n % 8 * 8) = *reinterpret_cast<const uint4 *>(tile + place(row, n % 8));
    }
}

// The four lanes that share a row.
static __device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

static __device__ __forceinline__ float row_most(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ u32 row_bits(u32 x) {
    x |= __shfl_xor_sync(0xffffffffu, x, 1);
    return x | __shfl_xor_sync(0xffffffffu, x, 2);
}

// y [rows * width, heads, 64]. `log_sums` has for each row of scores the logarithm to base 2 of its sum of powers, and `mask` what dropout
// kept of it: 64 bits for each tile of keys.
extern "C" __global__ void __launch_bounds__(THREADS, 3) attention(
    const Raw *qkv, Raw *y, float *log_sums, uint2 *mask, const Attention of
) {
    __shared__ __align__(128) Raw tiles[2][2][TILE * HEAD];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // With a causal mask later tiles take longer: they go first.
    u32 tile = gridDim.x - 1 - blockIdx.x, first = tile * TILE;
    Head head(of, blockIdx.y);
    const Raw *keys = head.of(qkv, 1), *values = head.of(qkv, 2);
    u32 count = of.causal ? tile + 1 : gridDim.x;
    fetch(tiles[1][0], head.of(qkv, 0), first, of.width, head.apart);
    fetch(tiles[0][0], keys, 0, of.width, head.apart);
    fetch(tiles[0][1], values, 0, of.width, head.apart);
    begun();
    arrived<0>();
    u32 queries[4][4];
    left(queries, tiles[1][0], warp * 16);
    __syncthreads();
    float sums[8][4], most[2] = {least(), least()}, total[2] = {0.0f, 0.0f};
    clear(sums);
    // The rows of this thread are `row` and `row + 8`, its columns of each eight `inside` and the next.
    u32 row = first + warp * 16 + lane / 4, inside = lane % 4 * 2;
    u64 index = u64(blockIdx.y) * of.width + row;
    for (u32 t = 0; t < count; t++) {
        if (t + 1 < count) {
            fetch(tiles[(t + 1) & 1][0], keys, (t + 1) * TILE, of.width, head.apart);
            fetch(tiles[(t + 1) & 1][1], values, (t + 1) * TILE, of.width, head.apart);
        }
        begun();
        arrived<1>();
        float scores[8][4];
        clear(scores);
        times_turned(scores, queries, tiles[t & 1][0], 0);
        u32 column = t * TILE + inside;
        if ((of.causal && t == tile) || (t + 1) * TILE > of.width) {
#pragma unroll
            for (u32 n = 0; n < 8; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    u32 at = column + 8 * n + i % 2;
                    if (at >= of.width || (of.causal && at > row + i / 2 * 8)) scores[n][i] = least();
                }
        }
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            float top = most[h];
#pragma unroll
            for (u32 n = 0; n < 8; n++) top = fmaxf(top, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
            top = row_most(top);
            float before = power_of_two((most[h] - top) * of.scale), off = -top * of.scale;
            most[h] = top;
            total[h] *= before;
#pragma unroll
            for (u32 n = 0; n < 8; n++)
#pragma unroll
                for (u32 i = 2 * h; i < 2 * h + 2; i++) {
                    sums[n][i] *= before;
                    scores[n][i] = power_of_two(__fmaf_rn(scores[n][i], of.scale, off));
                    total[h] += scores[n][i];
                }
        }
        if (of.drops) {
            u32 words[2][2] = {{0, 0}, {0, 0}};
#pragma unroll
            for (u32 n = 0; n < 8; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    u32 number = u32((index + i / 2 * 8) * of.width) + column + 8 * n + i % 2;
                    bool stays = kept(number, of.key, of.threshold, 1.0f) != 0.0f;
                    if (!stays) scores[n][i] = 0.0f;
                    words[i / 2][n / 4] |= u32(stays) << (n % 4 * 8 + inside + i % 2);
                }
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                uint2 all = make_uint2(row_bits(words[h][0]), row_bits(words[h][1]));
                if (lane % 4 == h && row + 8 * h < of.width) mask[(index + 8 * h) * gridDim.x + t] = all;
            }
        }
        times(sums, scores, tiles[t & 1][1], 0);
        __syncthreads();
    }
    float share[2];
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        total[h] = row_sum(total[h]);
        share[h] = (of.drops ? of.factor : 1.0f) / total[h];
        if (lane % 4 == h && row + 8 * h < of.width) log_sums[index + 8 * h] = most[h] * of.scale + log2f(total[h]);
    }
    put(head.joined(y), sums, share[0], share[1], tiles[0][0], first, of.width, head.part);
}

// Replaces a score by its attention weight, or by zero where dropout drops it, without dropout's factor; and the gradient of the weight by that of
// the scaled score.
static __device__ __forceinline__ void differentiate(
    float &score, float &gradient, float log_sum, float dot, bool stays, const Attention &of
) {
    float weight = power_of_two(__fmaf_rn(score, of.scale, -log_sum));
    float kept_gradient = of.drops ? (stays ? gradient * of.factor : 0.0f) : gradient;
    score = of.drops && !stays ? 0.0f : weight;
    gradient = weight * (kept_gradient - dot);
}

// The gradient of queries, into their part of that of the input, and for each row of scores the sum of dy times y.
extern "C" __global__ void __launch_bounds__(THREADS, 3) attention_back_queries(
    const Raw *qkv, const Raw *y, const Raw *dy, const float *log_sums, const uint2 *mask, float *dots, Raw *dqkv, const Attention of
) {
    __shared__ __align__(128) Raw tiles[2][2][TILE * HEAD];
    __shared__ float row_dots[TILE];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 tile = gridDim.x - 1 - blockIdx.x, first = tile * TILE;
    Head head(of, blockIdx.y);
    const Raw *keys = head.of(qkv, 1), *values = head.of(qkv, 2), *output_gradient = head.joined(dy);
    u32 count = of.causal ? tile + 1 : gridDim.x;
    fetch(tiles[1][0], head.of(qkv, 0), first, of.width, head.apart);
    fetch(tiles[1][1], output_gradient, first, of.width, head.part);
    fetch(tiles[0][0], keys, 0, of.width, head.apart);
    fetch(tiles[0][1], values, 0, of.width, head.apart);
    begun();
    u64 index = u64(blockIdx.y) * of.width + first;
    {
        // Two threads for each row, half of its features each.
        u32 row = threadIdx.x / 2, token = first + row;
        float dot = 0.0f;
        if (token < of.width) {
            u64 start = u64(token) * head.part + threadIdx.x % 2 * 32;
            const Raw *one = head.joined(y) + start, *other = output_gradient + start;
#pragma unroll
            for (u32 k = 0; k < 32; k += 8) {
                float a[8], b[8];
                load<Format, 8>(a, one + k);
                load<Format, 8>(b, other + k);
#pragma unroll
                for (u32 i = 0; i < 8; i++) dot = __fmaf_rn(a[i], b[i], dot);
            }
        }
        dot += __shfl_xor_sync(0xffffffffu, dot, 1);
        if (threadIdx.x % 2 == 0) {
            row_dots[row] = dot;
            if (token < of.width) dots[index + row] = dot;
        }
    }
    arrived<0>();
    u32 queries[4][4], gradients[4][4];
    left(queries, tiles[1][0], warp * 16);
    left(gradients, tiles[1][1], warp * 16);
    u32 row = warp * 16 + lane / 4, inside = lane % 4 * 2;
    float log_sum[2], dot[2];
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        dot[h] = row_dots[row + 8 * h];
        log_sum[h] = first + row + 8 * h < of.width ? log_sums[index + row + 8 * h] : 0.0f;
    }
    __syncthreads();
    float sums[8][4];
    clear(sums);
    for (u32 t = 0; t < count; t++) {
        if (t + 1 < count) {
            fetch(tiles[(t + 1) & 1][0], keys, (t + 1) * TILE, of.width, head.apart);
            fetch(tiles[(t + 1) & 1][1], values, (t + 1) * TILE, of.width, head.apart);
        }
        begun();
        uint2 words[2] = {make_uint2(0, 0), make_uint2(0, 0)};
        if (of.drops) {
#pragma unroll
            for (u32 h = 0; h < 2; h++)
                if (first + row + 8 * h < of.width) words[h] = mask[(index + row + 8 * h) * gridDim.x + t];
        }
        arrived<1>();
        float scores[8][4], inner[8][4];
        clear(scores);
        clear(inner);
        times_turned(scores, queries, tiles[t & 1][0], 0);
        times_turned(inner, gradients, tiles[t & 1][1], 0);
        bool edge = (of.causal && t == tile) || (t + 1) * TILE > of.width;
#pragma unroll
        for (u32 n = 0; n < 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 column = 8 * n + inside + i % 2, h = i / 2;
                u32 at = t * TILE + column;
                if (edge && (at >= of.width || (of.causal && at > first + row + 8 * h))) scores[n][i] = least();
                bool stays = ((n < 4 ? words[h].x : words[h].y) >> (n % 4 * 8 + inside + i % 2)) & 1;
                differentiate(scores[n][i], inner[n][i], log_sum[h], dot[h], stays, of);
            }
        times(sums, inner, tiles[t & 1][0], 0);
        __syncthreads();
    }
    const float scale = SCALE;
    put(head.of(dqkv, 0), sums, scale, scale, tiles[0][0], first, of.width, head.apart);
}

// The gradients of keys and values, into their parts of that of the input.
extern "C" __global__ void __launch_bounds__(THREADS, 2) attention_back_keys(
    const Raw *qkv, const Raw *dy, const float *log_sums, const uint2 *mask, const float *dots, Raw *dqkv, const Attention of
) {
    __shared__ __align__(128) Raw tiles[2][2][TILE * HEAD];
    __shared__ __align__(16) float log_sum[2][TILE], dot[2][TILE];
    __shared__ __align__(16) u32 words[2][2][TILE];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 tile = blockIdx.x, first = tile * TILE, begin = of.causal ? tile : 0;
    Head head(of, blockIdx.y);
    const Raw *queries = head.of(qkv, 0), *output_gradient = head.joined(dy);
    u64 index = u64(blockIdx.y) * of.width;
    // Begins to copy what the loop needs at t, into one half of the memory; the other half has keys and values first.
    auto fetch_queries = [&](u32 t) {
        u32 half = t & 1, from = t * TILE, token = threadIdx.x % TILE;
        bool there = from + token < of.width;
        fetch(tiles[half][0], queries, from, of.width, head.apart);
        fetch(tiles[half][1], output_gradient, from, of.width, head.part);
        if (threadIdx.x < TILE) fetch_row(log_sum[half], log_sums + index + from, token, there);
        else fetch_row(dot[half], dots + index + from, token, there);
        if (of.drops) {
            // One word for keys 0 to 31 of the tile, one for the others.
            u32 word = threadIdx.x / TILE;
            u64 at = ((index + from + (there ? token : 0)) * gridDim.x + tile) * 2 + word;
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                         ::"r"(address(&words[half][word][token])), "l"(reinterpret_cast<const u32 *>(mask) + at), "r"(there ? 4 : 0) : "memory");
        }
    };
    fetch(tiles[~begin & 1][0], head.of(qkv, 1), first, of.width, head.apart);
    fetch(tiles[~begin & 1][1], head.of(qkv, 2), first, of.width, head.apart);
    fetch_queries(begin);
    begun();
    arrived<0>();
    u32 keys[4][4], values[4][4];
    left(keys, tiles[~begin & 1][0], warp * 16);
    left(values, tiles[~begin & 1][1], warp * 16);
    __syncthreads();
    float key_sums[8][4], value_sums[8][4];
    clear(key_sums);
    clear(value_sums);
    u32 row = warp * 16 + lane / 4, inside = lane % 4 * 2;
    for (u32 t = begin; t < gridDim.x; t++) {
        if (t + 1 < gridDim.x) fetch_queries(t + 1);
        begun();
        arrived<1>();
        u32 half = t & 1;
#pragma unroll
        for (u32 part = 0; part < TILE; part += 32) {
            // Rows are keys, columns are queries. Behind the end, these and their gradients are zeros, and so is what they add.
            float scores[4][4], inner[4][4];
            clear(scores);
            clear(inner);
            times_turned(scores, keys, tiles[half][0], part);
            times_turned(inner, values, tiles[half][1], part);
#pragma unroll
            for (u32 n = 0; n < 4; n++)
#pragma unroll
                for (u32 j = 0; j < 2; j++) {
                    u32 column = part + 8 * n + inside + j;
                    u32 word = of.drops ? words[half][warp / 2][column] >> (warp % 2 * 16 + lane / 4) : 0;
                    float below = log_sum[half][column], sum = dot[half][column];
#pragma unroll
                    for (u32 h = 0; h < 2; h++) {
                        u32 i = 2 * h + j;
                        if (of.causal && t == tile && row + 8 * h > column) scores[n][i] = least();
                        differentiate(scores[n][i], inner[n][i], below, sum, (word >> (8 * h)) & 1, of);
                    }
                }
            times(value_sums, scores, tiles[half][1], part);
            times(key_sums, inner, tiles[half][0], part);
        }
        __syncthreads();
    }
    float scale = SCALE, factor = of.drops ? of.factor : 1.0f;
    put(head.of(dqkv, 1), key_sums, scale, scale, tiles[0][0], first, of.width, head.apart);
    put(head.of(dqkv, 2), value_sums, factor, factor, tiles[0][1], first, of.width, head.apart);
}
