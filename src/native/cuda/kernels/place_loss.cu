// YOLOv3's loss and its gradient, by a thread for each place of a picture; and its boxes and scores, by a warp for each place.
// Answers [rows, 5 + classes, places], targets [rows, 7, places], boxes [rows, most, 4], planes [5, places].

struct Of {
    u32 rows, places, classes, most;
    // Of the intersection over union, and of the logarithm of a side.
    float ignored, largest;
};

static __device__ __forceinline__ float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

// -t ln s(x) - (1 - t) ln(1 - s(x)).
static __device__ __forceinline__ float entropy(float x, float t) {
    return fmaxf(x, 0.0f) - x * t + log1pf(expf(-fabsf(x)));
}

// 1 where the place's box overlaps with one of the row's, else 0.
static __device__ __forceinline__ float overlaps(
    const float *answer, const float *plane, const float *boxes, const Of &of
) {
    u64 n = of.places;
    float x = (logistic(answer[0]) + plane[0]) * plane[2 * n], y = (logistic(answer[n]) + plane[n]) * plane[2 * n];
    float half_width = expf(fminf(answer[2 * n], of.largest)) * plane[3 * n] * 0.5f;
    float half_height = expf(fminf(answer[3 * n], of.largest)) * plane[4 * n] * 0.5f;
    float left = x - half_width, top = y - half_height, right = x + half_width, bottom = y + half_height;
    float area = (right - left) * (bottom - top);
    for (u32 i = 0; i < of.most; i++) {
        // Left, top, right, bottom.
        const float *box = boxes + i * 4;
        float width = fmaxf(fminf(right, box[2]) - fmaxf(left, box[0]), 0.0f);
        float height = fmaxf(fminf(bottom, box[3]) - fmaxf(top, box[1]), 0.0f);
        float both = area + (box[2] - box[0]) * (box[3] - box[1]);
        if (width * height * (1.0f + of.ignored) - both * of.ignored > 0.0f) return 1.0f;
    }
    return 0.0f;
}

// The loss of each place [rows, places], and 1 where its objectness counts.
extern "C" __global__ void __launch_bounds__(256) place_loss(
    const float *answers, const float *targets, const float *boxes, const float *planes, float *losses, float *counted, Of of
) {
    u64 n = of.places, at = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= of.rows * n) return;
    u64 row = at / n, place = at % n;
    const float *answer = answers + row * (5 + of.classes) * n + place, *target = targets + row * 7 * n + place;
    float object = target[5 * n];
    float counts = overlaps(answer, planes + place, boxes + row * of.most * 4, of) * (object - 1.0f) + 1.0f;
    float width = answer[2 * n] - target[2 * n], height = answer[3 * n] - target[3 * n];
    float box = entropy(answer[0], target[0]) + entropy(answer[n], target[n]) + (width * width + height * height) * 0.5f;
    float loss = box * target[4 * n] + entropy(answer[4 * n], object) * counts;
    // Without an object the class logits do not count, even if they are NaN.
    if (object != 0.0f)
        for (u32 class_ = 0; class_ < of.classes; class_++)
            loss += entropy(answer[(5 + class_) * n], target[6 * n] == float(class_) ? 1.0f : 0.0f);
    losses[at] = loss;
    counted[at] = counts;
}

// Times a factor, which is on the device.
extern "C" __global__ void __launch_bounds__(256) place_loss_back(
    const float *answers, const float *targets, const float *counted, const float *factor, float *gradient, Of of
) {
    u64 n = of.places, at = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= of.rows * n) return;
    u64 row = at / n, place = at % n, first = row * (5 + of.classes) * n + place;
    const float *answer = answers + first, *target = targets + row * 7 * n + place;
    float *to = gradient + first, times = *factor, object = target[5 * n], weight = target[4 * n];
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        to[i * n] = (logistic(answer[i * n]) - target[i * n]) * weight * times;
        to[(2 + i) * n] = (answer[(2 + i) * n] - target[(2 + i) * n]) * weight * times;
    }
    to[4 * n] = (logistic(answer[4 * n]) - object) * counted[at] * times;
    for (u32 class_ = 0; class_ < of.classes; class_++) {
        float slope = 0.0f;
        if (object != 0.0f)
            slope = (logistic(answer[(5 + class_) * n]) - (target[6 * n] == float(class_) ? 1.0f : 0.0f)) * times;
        to[(5 + class_) * n] = slope;
    }
}

struct Level {
    u32 rows, places, classes, boxes;
    // Cells of the level, and the number of its first place.
    u32 cells, first;
    // Of the logarithm of a side.
    float largest;
    u32 unused;
};

// Decodes one level's answers [rows, cells, boxes, 5 + classes]. Writes left, top, right, bottom and the scores of the classes, [rows, places, 4 + classes], and the
// best score, [rows, places]. The places of a level are ordered by box, then by cell. NaN is never the best score.
template <class T>
static __device__ __forceinline__ void place_scores(
    const typename T::Raw *answers, const float *planes, float *lines, float *best, const Level &of
) {
    u64 line = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    u32 lane = threadIdx.x % 32;
    if (line >= u64(of.rows) * of.cells * of.boxes) return;
    u64 cell = line / of.boxes, row = cell / of.cells;
    u64 place = of.first + line % of.boxes * of.cells + cell % of.cells;
    const typename T::Raw *answer = answers + line * (5 + of.classes);
    const float *plane = planes + place;
    u64 to = row * of.places + place, n = of.places;
    float *made = lines + to * (4 + of.classes);
    if (lane < 4) {
        u32 axis = lane % 2;
        float middle = (logistic(T::get(answer[axis])) + plane[axis * n]) * plane[2 * n];
        float half = expf(fminf(T::get(answer[2 + axis]), of.largest)) * plane[(3 + axis) * n] * 0.5f;
        made[lane] = lane < 2 ? middle - half : middle + half;
    }
    float object = logistic(T::get(answer[4])), most = least();
    for (u32 class_ = lane; class_ < of.classes; class_ += 32) {
        float score = logistic(T::get(answer[5 + class_])) * object;
        made[4 + class_] = score;
        most = fmaxf(most, score);
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, apart));
    if (lane == 0) best[to] = most;
}

#define SCORES(END, T) \
    extern "C" __global__ void __launch_bounds__(256) place_scores_##END( \
        const T::Raw *answers, const float *planes, float *lines, float *best, Level of \
    ) { place_scores<T>(answers, planes, lines, best, of); }

SCORES(f32, F32)
SCORES(f16, F16)
SCORES(bf16, Bf16)
