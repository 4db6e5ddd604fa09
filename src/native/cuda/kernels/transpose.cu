// Transposes many matrices in one launch, each value from one number format to another.

#define ENTRIES 32
#define WORDS 4
// A block has a square of this side.
#define SIDE 32u
#define ROWS 8u

struct Table {
    // From where, to where, rows and columns (in halves) of what is there, and the first of its blocks.
    u64 words[ENTRIES * WORDS];
};

template <class From, class To>
static __device__ __forceinline__ void transpose(const Table &table, u32 entries) {
    // A column more, so that a column of the square does not lie in one bank.
    __shared__ float square[SIDE][SIDE + 1];
    // The last entry whose first block is not behind this one.
    u32 low = 0, high = entries;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (u32(table.words[middle * WORDS + 3]) <= blockIdx.x) low = middle; else high = middle;
    }
    const u64 *words = table.words + low * WORDS;
    const typename From::Raw *from = (const typename From::Raw *)words[0];
    typename To::Raw *to = (typename To::Raw *)words[1];
    u32 rows = u32(words[2]), columns = u32(words[2] >> 32), block = blockIdx.x - u32(words[3]);
    u32 across = columns / SIDE + (columns % SIDE != 0);
    u32 top = block / across * SIDE, left = block % across * SIDE;
#pragma unroll
    for (u32 i = 0; i < SIDE; i += ROWS) {
        u32 row = top + threadIdx.y + i, column = left + threadIdx.x;
        if (row < rows && column < columns)
            square[threadIdx.y + i][threadIdx.x] = From::get(from[u64(row) * columns + column]);
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < SIDE; i += ROWS) {
        u32 row = top + threadIdx.x, column = left + threadIdx.y + i;
        if (row < rows && column < columns)
            to[u64(column) * rows + row] = To::put(square[threadIdx.x][threadIdx.y + i]);
    }
}

#define KERNEL(NAME, FROM, TO) \
    extern "C" __global__ void __launch_bounds__(SIDE * ROWS) transpose_##NAME( \
        const __grid_constant__ Table table, u32 entries \
    ) { \
        transpose<FROM, TO>(table, entries); \
    }

KERNEL(f32_f32, F32, F32)
KERNEL(f32_f16, F32, F16)
KERNEL(f32_bf16, F32, Bf16)
KERNEL(f16_f32, F16, F32)
KERNEL(bf16_f32, Bf16, F32)
