// Work for as long as it is asked: what a card draws under it is known to begin and to end at known times.

#define SUMS 16

extern "C" __global__ void __launch_bounds__(256) load(float *out, u32 microseconds) {
    u64 start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    float sums[SUMS];
#pragma unroll
    for (int k = 0; k < SUMS; k++) sums[k] = float(threadIdx.x + 1 + k) * 0.001f;
    float factor = 0.999f + float(blockIdx.x) * 1e-6f;
    do {
        for (int round = 0; round < 64; round++) {
#pragma unroll
            for (int k = 0; k < SUMS; k++) sums[k] = fmaf(sums[k], factor, 0.001f);
        }
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < u64(microseconds) * 1000);
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < SUMS; k++) sum += sums[k];
    // It never is, which the compiler does not know.
    if (sum < 0.0f) out[0] = sum;
}
