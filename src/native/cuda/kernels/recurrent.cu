// One time of a recurrent layer, forward and backward: all but its product. A block works on a stretch of a row, and each value of a state is one thread's at all
// times, so that what one thread reads and writes may be the same memory.

static __device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// 1 minus it.
static __device__ __forceinline__ float rest(float x) { return -x + 1.0f; }

// Memory of one time. What is null is not there.
struct Forward {
    // What the inputs give to the gates, in the format of products.
    const void *inputs;
    // What the states before give, null at the first time: those are zeros.
    const float *given;
    const float *bias_inputs;
    const float *bias_given;
    // The cell's memory before (LSTM) or its state before (GRU), null at the first time.
    const float *before;
    // The gates after their functions, null where there is no backward.
    float *gates;
    // The memory after (LSTM), or what the state before gives to n (GRU).
    float *beside;
    // The state after.
    float *answer;
    // The state before the first time for a product, at that time.
    void *first;
    // The state after for the next product, null at the last time.
    void *next;
    u32 hidden;
};

// Both parts of the gates before their functions.
template <class T, int G>
static __device__ __forceinline__ void gather(
    float (&of_inputs)[G], float (&of_given)[G], const Forward &on, u32 row, u32 column
) {
    const typename T::Raw *inputs = static_cast<const typename T::Raw *>(on.inputs);
#pragma unroll
    for (int gate = 0; gate < G; gate++) {
        u32 along = gate * on.hidden + column;
        u64 place = u64(row) * G * on.hidden + along;
        of_inputs[gate] = T::get(inputs[place]) + on.bias_inputs[along];
        of_given[gate] = (on.given ? on.given[place] : 0.0f) + on.bias_given[along];
    }
}

template <class T, int G>
static __device__ __forceinline__ void finish(
    const float (&gates)[G], float state, const Forward &on, u32 row, u32 column
) {
    u64 place = u64(row) * on.hidden + column;
    on.answer[place] = state;
    if (on.first) static_cast<typename T::Raw *>(on.first)[place] = T::put(0.0f);
    // Behind the zeros, whose memory it may be.
    if (on.next) static_cast<typename T::Raw *>(on.next)[place] = T::put(state);
    if (!on.gates) return;
#pragma unroll
    for (int gate = 0; gate < G; gate++) on.gates[(u64(row) * G + gate) * on.hidden + column] = gates[gate];
}

template <class T>
static __device__ __forceinline__ void lstm(const Forward &on) {
    u32 row = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= on.hidden) return;
    u64 place = u64(row) * on.hidden + column;
    float before = on.before ? on.before[place] : 0.0f;
    float gates[4], given[4];
    gather<T, 4>(gates, given, on, row, column);
#pragma unroll
    for (int gate = 0; gate < 4; gate++) {
        float sum = gates[gate] + given[gate];
        gates[gate] = gate == 2 ? tanhf(sum) : sigmoid(sum);
    }
    float after = gates[1] * before + gates[0] * gates[2];
    on.beside[place] = after;
    finish<T, 4>(gates, gates[3] * tanhf(after), on, row, column);
}

template <class T>
static __device__ __forceinline__ void gru(const Forward &on) {
    u32 row = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= on.hidden) return;
    u64 place = u64(row) * on.hidden + column;
    float before = on.before ? on.before[place] : 0.0f;
    float gates[3], given[3];
    gather<T, 3>(gates, given, on, row, column);
    gates[0] = sigmoid(gates[0] + given[0]);
    gates[1] = sigmoid(gates[1] + given[1]);
    gates[2] = tanhf(gates[2] + gates[0] * given[2]);
    on.beside[place] = given[2];
    finish<T, 3>(gates, rest(gates[1]) * gates[2] + gates[1] * before, on, row, column);
}

// Memory of one time. What is null is zeros.
struct Backward {
    // The gradient of the answer at this time.
    const float *answer;
    // What comes back through the gates of the next time, null at the last.
    const float *through;
    // What comes back beside them: the gradient of the memory (LSTM), or what the next state has of this one directly (GRU), null at the last time.
    const float *kept;
    // The same for the time before.
    float *keep;
    // What the forward kept: the gates after their functions,
    const float *gates;
    // the memory after (LSTM) or what the state before gave to n (GRU),
    const float *beside;
    // and the memory before (LSTM) or the state before (GRU), null at the first time.
    const float *before;
    // The gradients of the gates, in the format of products: of what the inputs give, and of what the states before give (GRU).
    void *inputs;
    void *given;
    u32 hidden;
};

template <class T, int G>
static __device__ __forceinline__ void put(void *into, const float (&gradients)[G], u32 hidden, u32 row, u32 column) {
    typename T::Raw *raw = static_cast<typename T::Raw *>(into);
#pragma unroll
    for (int gate = 0; gate < G; gate++) raw[(u64(row) * G + gate) * hidden + column] = T::put(gradients[gate]);
}

template <class T>
static __device__ __forceinline__ void lstm_back(const Backward &on) {
    u32 row = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= on.hidden) return;
    u64 place = u64(row) * on.hidden + column, first = u64(row) * 4 * on.hidden + column;
    float i = on.gates[first], f = on.gates[first + on.hidden];
    float g = on.gates[first + 2 * u64(on.hidden)], o = on.gates[first + 3 * u64(on.hidden)];
    float after = tanhf(on.beside[place]);
    float before = on.before ? on.before[place] : 0.0f;
    float of_h = on.answer[place] + (on.through ? on.through[place] : 0.0f);
    float of_c = (on.kept ? on.kept[place] : 0.0f) + of_h * o * rest(after * after);
    float gradients[4] = {
        of_c * g * i * rest(i),
        of_c * before * f * rest(f),
        of_c * i * rest(g * g),
        of_h * after * o * rest(o),
    };
    on.keep[place] = of_c * f;
    put<T, 4>(on.inputs, gradients, on.hidden, row, column);
}

template <class T>
static __device__ __forceinline__ void gru_back(const Backward &on) {
    u32 row = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= on.hidden) return;
    u64 place = u64(row) * on.hidden + column, first = u64(row) * 3 * on.hidden + column;
    float r = on.gates[first], z = on.gates[first + on.hidden], n = on.gates[first + 2 * u64(on.hidden)];
    float before = on.before ? on.before[place] : 0.0f;
    float of_h = on.kept ? on.kept[place] : 0.0f;
    if (on.through) of_h += on.through[place];
    of_h = on.answer[place] + of_h;
    float of_n = of_h * rest(z) * rest(n * n);
    float of_z = of_h * (before - n) * z * rest(z);
    float of_r = of_n * on.beside[place] * r * rest(r);
    on.keep[place] = of_h * z;
    float inputs[3] = {of_r, of_z, of_n}, given[3] = {of_r, of_z, of_n * r};
    put<T, 3>(on.inputs, inputs, on.hidden, row, column);
    put<T, 3>(on.given, given, on.hidden, row, column);
}

#define KERNELS(END, T) \
    extern "C" __global__ void lstm_##END(const __grid_constant__ Forward on) { lstm<T>(on); } \
    extern "C" __global__ void gru_##END(const __grid_constant__ Forward on) { gru<T>(on); } \
    extern "C" __global__ void lstm_back_##END(const __grid_constant__ Backward on) { lstm_back<T>(on); } \
    extern "C" __global__ void gru_back_##END(const __grid_constant__ Backward on) { gru_back<T>(on); }

KERNELS(f32, F32)
KERNELS(f16, F16)
KERNELS(bf16, Bf16)
