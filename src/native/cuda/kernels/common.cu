// What the kernels have in common: number formats by their bits, packs of values, and sums whose order never changes.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

struct F32 {
    typedef float Raw;
    static __device__ __forceinline__ float get(Raw raw) { return raw; }
    static __device__ __forceinline__ Raw put(float value) { return value; }
    static __device__ __forceinline__ float power(float x) { return expf(x); }
};

struct F16 {
    typedef u16 Raw;
    static __device__ __forceinline__ float get(Raw raw) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(raw));
        return value;
    }
    static __device__ __forceinline__ Raw put(float value) {
        Raw raw;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(raw) : "f"(value));
        return raw;
    }
    // The rest of its error is far below what the format can hold.
    static __device__ __forceinline__ float power(float x) { return __expf(x); }
};

struct Bf16 {
    typedef u16 Raw;
    static __device__ __forceinline__ float get(Raw raw) { return __uint_as_float(u32(raw) << 16); }
    static __device__ __forceinline__ Raw put(float value) {
#if __CUDA_ARCH__ >= 800
        Raw raw;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(raw) : "f"(value));
        return raw;
#else
        u32 bits = __float_as_uint(value);
        // The carry of a rounded NaN could end in an infinity.
        if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
        return u16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
    }
    static __device__ __forceinline__ float power(float x) { return __expf(x); }
};

// So many values, read and written at once.
template <class T, int N>
struct __align__(sizeof(typename T::Raw) * N) Pack {
    typename T::Raw raw[N];
};

template <class T, int N>
static __device__ __forceinline__ void load(float (&values)[N], const typename T::Raw *from) {
    Pack<T, N> pack = *reinterpret_cast<const Pack<T, N> *>(from);
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = T::get(pack.raw[i]);
}

template <class T, int N>
static __device__ __forceinline__ void store(typename T::Raw *to, const float (&values)[N]) {
    Pack<T, N> pack;
#pragma unroll
    for (int i = 0; i < N; i++) pack.raw[i] = T::put(values[i]);
    *reinterpret_cast<Pack<T, N> *>(to) = pack;
}

static __device__ __forceinline__ float least() { return __int_as_float(0xff800000); }

// Every lane gets the same sum: partners add the same two numbers.
static __device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart >>= 1) value += __shfl_xor_sync(0xffffffffu, value, apart);
    return value;
}

// The largest of some scores, and the sum of the powers of e of what they are below it.
struct Soft {
    float most;
    float sum;

    template <class T>
    __device__ __forceinline__ void rescale(float top) {
        // Nothing but -inf so far: there is no difference to take.
        if (top != least()) sum *= T::power(most - top);
        most = top;
    }

    template <class T, int N>
    __device__ __forceinline__ void take(const float (&values)[N]) {
        float top = most;
#pragma unroll
        for (int i = 0; i < N; i++) top = fmaxf(top, values[i]);
        rescale<T>(top);
#pragma unroll
        for (int i = 0; i < N; i++) sum += values[i] == least() ? 0.0f : T::power(values[i] - top);
    }

    template <class T>
    __device__ __forceinline__ void join(float other_most, float other_sum) {
        float top = fmaxf(most, other_most);
        rescale<T>(top);
        if (top != least()) sum += other_sum * T::power(other_most - top);
    }

    template <class T>
    __device__ __forceinline__ void over_warp() {
#pragma unroll
        for (int apart = 16; apart > 0; apart >>= 1) {
            float other_most = __shfl_xor_sync(0xffffffffu, most, apart);
            float other_sum = __shfl_xor_sync(0xffffffffu, sum, apart);
            join<T>(other_most, other_sum);
        }
    }
};

// The finaliser of MurmurHash3.
static __device__ __forceinline__ u32 mix(u32 h) {
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ (h >> 16);
}

// What dropout multiplies the n-th value by. A zero is a factor like any other: what is no number stays none.
static __device__ __forceinline__ float kept(u32 n, u32 key, float threshold, float factor) {
    u32 bits = mix(mix(n * 0x9e3779b9u) + key) >> 8;
    return __uint2float_rn(bits) >= threshold ? factor : 0.0f;
}
