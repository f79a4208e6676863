// The kernels of a Llama forward pass on flattened tokens, except the products of 16-bit types, which cuBLAS computes, and the
// choice of the next token, which sampling.cu has: it follows this source.
//
// One source for two compilers: NVRTC makes it for the card at run time, and the tests make it for the host, where
// emulator.cpp stands in for the launch, the barriers and the shuffles. LUMOS_ELEMENT says what weights, keys,
// values and the inputs of products are: 0 float32, 1 bfloat16, 2 half. All arithmetic is float32.
//
// Sizes are counted in elements. A place is page number × positions of a page + position within the page; keys and
// values of one layer lie as [page][position][key-value head][head size].

typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef LUMOS_EMULATOR
#define KERNEL extern "C" __global__
#define MEMBER __device__ __forceinline__
#define SHARED_MEMORY(name) extern __shared__ __align__(16) float name[]
#define INFINITE __int_as_float(0x7f800000)
#endif

#define LANES 32
#define ALL_LANES 0xffffffffu

#if LUMOS_ELEMENT == 0
typedef float Element;
__device__ __forceinline__ float widen(Element value) { return value; }
__device__ __forceinline__ Element narrow(float value) { return value; }
#elif LUMOS_ELEMENT == 1
typedef unsigned short Element;
__device__ __forceinline__ float widen(Element value) { return __uint_as_float((u32)value << 16); }
// To the nearest, ties to even; what is not a number stays so.
__device__ __forceinline__ Element narrow(float value) {
    u32 bits = __float_as_uint(value);
    if (value != value) return (Element)(bits >> 16 | 0x40u);
    return (Element)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
#elif LUMOS_ELEMENT == 2
typedef unsigned short Element;
#ifndef LUMOS_EMULATOR
__device__ __forceinline__ float widen(Element value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value));
    return wide;
}
__device__ __forceinline__ Element narrow(float value) {
    Element half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}
#endif
#endif

__device__ __forceinline__ float warp_sum(float value) {
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

__device__ __forceinline__ float warp_maximum(float value) {
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

// Four elements from an address that is aligned to their size.
__device__ __forceinline__ float4 load4(const Element* from) {
#if LUMOS_ELEMENT == 0
    return *(const float4*)from;
#else
    const ushort4 four = *(const ushort4*)from;
    return make_float4(widen(four.x), widen(four.y), widen(four.z), widen(four.w));
#endif
}

// Four elements from `start` on of a row with `inputs`; WHOLE if that is a multiple of four. Zeros behind its end.
template <bool WHOLE>
__device__ __forceinline__ float4 load_four(const Element* row, u32 start, u32 inputs) {
    if (WHOLE) return load4(row + start);
    const u32 left = inputs - start;
    return make_float4(widen(row[start]), left > 1 ? widen(row[start + 1]) : 0.0f, left > 2 ? widen(row[start + 2]) : 0.0f,
                       left > 3 ? widen(row[start + 3]) : 0.0f);
}

// Adds up COUNT values of each lane over the warp, COUNT a power of two. At each distance a lane gives away half of its
// values and keeps the other half, until one is left, or COUNT / LANES. Value `index` ends in values[index % LEFT] of the lanes
// whose leading bits are index / LEFT, where LEFT is what is left. Each value is added in the same order for every COUNT.
template <u32 COUNT, u32 DISTANCE>
__device__ __forceinline__ void warp_sums(float* values) {
    if constexpr (COUNT > 1) {
        const bool upper = threadIdx.x & DISTANCE;
#pragma unroll
        for (u32 index = 0; index < COUNT / 2; ++index) {
            const float low = values[index], high = values[index + COUNT / 2];
            values[index] = (upper ? high : low) + __shfl_xor_sync(ALL_LANES, upper ? low : high, DISTANCE);
        }
    } else {
        values[0] += __shfl_xor_sync(ALL_LANES, values[0], DISTANCE);
    }
    if constexpr (DISTANCE > 1) warp_sums<COUNT == 1 ? 1 : COUNT / 2, DISTANCE / 2>(values);
}

#define PRODUCT_OUTPUTS 8
#define PRODUCT_TOKENS 8

// A warp's PRODUCT_OUTPUTS outputs (from `first` on) of TOKENS rows: each lane adds the products of four neighbouring inputs,
// then of the four that are 4 × LANES further, and so on; then the lanes are added up. This order is the same for every
// TOKENS, so that a row's outputs do not depend on the other rows. Outputs and rows beyond the last ones are computed from
// the last ones and dropped.
template <u32 TOKENS, bool WHOLE>
__device__ __forceinline__ void product_tile(const Element* weights, const Element* input, float* output, u32 outputs,
                                             u32 inputs, u32 rows, u32 first, u32 row) {
    const u32 lane = threadIdx.x % LANES;
    const Element *left[PRODUCT_OUTPUTS], *right[TOKENS];
#pragma unroll
    for (u32 at = 0; at < PRODUCT_OUTPUTS; ++at) {
        left[at] = weights + (u64)(first + at < outputs ? first + at : outputs - 1) * inputs;
    }
#pragma unroll
    for (u32 at = 0; at < TOKENS; ++at) right[at] = input + (u64)(row + at < rows ? row + at : rows - 1) * inputs;
    float sums[PRODUCT_OUTPUTS * TOKENS];
#pragma unroll
    for (u32 at = 0; at < PRODUCT_OUTPUTS * TOKENS; ++at) sums[at] = 0.0f;
    for (u32 start = 4 * lane; start < inputs; start += 4 * LANES) {
        float4 tokens[TOKENS];
#pragma unroll
        for (u32 at = 0; at < TOKENS; ++at) tokens[at] = load_four<WHOLE>(right[at], start, inputs);
#pragma unroll
        for (u32 one = 0; one < PRODUCT_OUTPUTS; ++one) {
            const float4 four = load_four<WHOLE>(left[one], start, inputs);
#pragma unroll
            for (u32 at = 0; at < TOKENS; ++at) {
                float& sum = sums[at * PRODUCT_OUTPUTS + one];
                sum = __fmaf_rn(four.x, tokens[at].x, sum);
                sum = __fmaf_rn(four.y, tokens[at].y, sum);
                sum = __fmaf_rn(four.z, tokens[at].z, sum);
                sum = __fmaf_rn(four.w, tokens[at].w, sum);
            }
        }
    }
    warp_sums<PRODUCT_OUTPUTS * TOKENS, LANES / 2>(sums);
    constexpr u32 COUNT = PRODUCT_OUTPUTS * TOKENS, LEFT = COUNT < LANES ? 1 : COUNT / LANES;
    constexpr u32 SHARING = COUNT < LANES ? LANES / COUNT : 1;
    if (lane % SHARING) return;
#pragma unroll
    for (u32 at = 0; at < LEFT; ++at) {
        const u32 index = lane / SHARING * LEFT + at, one = first + index % PRODUCT_OUTPUTS;
        const u32 token = row + index / PRODUCT_OUTPUTS;
        if (one < outputs && token < rows) output[(u64)token * outputs + one] = sums[at];
    }
}

// Rows times weights (outputs × inputs, row-major), with the same order of additions for every number of rows. A warp for
// PRODUCT_OUTPUTS outputs (blockIdx.x and warp) of PRODUCT_TOKENS rows (blockIdx.y).
KERNEL void product(const Element* weights, const Element* input, float* output, u32 outputs, u32 inputs, u32 rows) {
    const u32 first = (blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES) * PRODUCT_OUTPUTS;
    const u32 row = blockIdx.y * PRODUCT_TOKENS, left = rows - row;
    if (first >= outputs) return;
    if (inputs % 4 != 0) {
        product_tile<PRODUCT_TOKENS, false>(weights, input, output, outputs, inputs, rows, first, row);
    } else if (left == 1) {
        product_tile<1, true>(weights, input, output, outputs, inputs, rows, first, row);
    } else if (left <= 4) {
        product_tile<4, true>(weights, input, output, outputs, inputs, rows, first, row);
    } else {
        product_tile<PRODUCT_TOKENS, true>(weights, input, output, outputs, inputs, rows, first, row);
    }
}

// One block a row: the embedding of its token.
KERNEL void embed(const u32* tokens, const Element* embedding, float* hidden, u32 width) {
    const Element* from = embedding + (u64)tokens[blockIdx.x] * width;
    float* to = hidden + (u64)blockIdx.x * width;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) to[at] = widen(from[at]);
}

#define NORM_LOADS 4

// Four elements to an address that is aligned to their size.
__device__ __forceinline__ void store4(Element* to, float4 four) {
#if LUMOS_ELEMENT == 0
    *(float4*)to = four;
#else
    *(ushort4*)to = make_ushort4(narrow(four.x), narrow(four.y), narrow(four.z), narrow(four.w));
#endif
}

// One block an output row: adds `update`, if there is one, to the row of `hidden`, and scales the sum to a root mean
// square of one and by `weight`. `rows` names the rows of `hidden`; without it they are the blocks' own. Threads handle four
// neighbouring numbers at a time if `width` is a multiple of four, and load NORM_LOADS times before they use the first. These
// stay in registers, so that rows of up to 4 × NORM_LOADS × blockDim.x numbers are read once.
// Shared memory: one float a warp.
KERNEL void rms_norm(const u32* __restrict__ rows, float* __restrict__ hidden, const float* __restrict__ update,
                     const float* __restrict__ weight, Element* __restrict__ output, u32 width, float epsilon) {
    SHARED_MEMORY(sums);
    const u64 row = rows ? rows[blockIdx.x] : blockIdx.x;
    float* values = hidden + row * width;
    const float* added = update ? update + row * width : nullptr;
    const u32 whole = width % 4 == 0 ? width : 0, step = 4 * blockDim.x, first = 4 * threadIdx.x;
    float4 kept[NORM_LOADS];
    float sum = 0.0f;
    for (u32 start = first; start < whole; start += NORM_LOADS * step) {
        float4 held[NORM_LOADS], more[NORM_LOADS];
#pragma unroll
        for (u32 load = 0; load < NORM_LOADS; ++load) {
            const u32 at = start + load * step;
            held[load] = at < width ? *(const float4*)(values + at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            more[load] = added && at < width ? *(const float4*)(added + at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
        for (u32 load = 0; load < NORM_LOADS; ++load) {
            const u32 at = start + load * step;
            float4& four = held[load];
            four.x += more[load].x, four.y += more[load].y, four.z += more[load].z, four.w += more[load].w;
            if (added && at < width) *(float4*)(values + at) = four;
            sum += four.x * four.x + four.y * four.y + four.z * four.z + four.w * four.w;
            if (start == first) kept[load] = four;
        }
    }
    for (u32 at = whole + threadIdx.x; at < width; at += blockDim.x) {
        float value = values[at];
        if (added) {
            value += added[at];
            values[at] = value;
        }
        sum += value * value;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % LANES == 0) sums[threadIdx.x / LANES] = sum;
    __syncthreads();
    sum = 0.0f;
    for (u32 warp = 0; warp < blockDim.x / LANES; ++warp) sum += sums[warp];
    const float scale = 1.0f / sqrtf(sum / (float)width + epsilon);
    Element* to = output + (u64)blockIdx.x * width;
    for (u32 start = first; start < whole; start += NORM_LOADS * step) {
        float4 factors[NORM_LOADS];
#pragma unroll
        for (u32 load = 0; load < NORM_LOADS; ++load) {
            const u32 at = start + load * step;
            if (at >= width) continue;
            factors[load] = *(const float4*)(weight + at);
            if (start != first) kept[load] = *(const float4*)(values + at);
        }
#pragma unroll
        for (u32 load = 0; load < NORM_LOADS; ++load) {
            const u32 at = start + load * step;
            const float4 four = kept[load], factor = factors[load];
            if (at < width) {
                store4(to + at, make_float4(four.x * scale * factor.x, four.y * scale * factor.y,
                                            four.z * scale * factor.z, four.w * scale * factor.w));
            }
        }
    }
    for (u32 at = whole + threadIdx.x; at < width; at += blockDim.x) to[at] = narrow(values[at] * scale * weight[at]);
}

// Turns COUNT neighbouring numbers of a head's first half, from `at` on, and those of its second half by their position, or
// copies them if they are values.
template <u32 COUNT>
__device__ __forceinline__ void rotate(float* own, const float* angles, Element* stored, u32 at, u32 half, bool turns) {
    alignas(16) float first[COUNT], second[COUNT], cosines[COUNT], sines[COUNT];
    if constexpr (COUNT == 4) {
        *(float4*)first = *(const float4*)(own + at), *(float4*)second = *(const float4*)(own + half + at);
        if (turns) *(float4*)cosines = *(const float4*)(angles + at), *(float4*)sines = *(const float4*)(angles + half + at);
    } else {
        first[0] = own[at], second[0] = own[half + at];
        if (turns) cosines[0] = angles[at], sines[0] = angles[half + at];
    }
#pragma unroll
    for (u32 index = 0; index < COUNT && turns; ++index) {
        const float turned = first[index] * cosines[index] - second[index] * sines[index];
        second[index] = second[index] * cosines[index] + first[index] * sines[index];
        first[index] = turned;
    }
    if constexpr (COUNT == 4) {
        float4 low = make_float4(first[0], first[1], first[2], first[3]);
        float4 high = make_float4(second[0], second[1], second[2], second[3]);
        if (stored) {
            store4(stored + at, low), store4(stored + half + at, high);
        } else {
            *(float4*)(own + at) = low, *(float4*)(own + half + at) = high;
        }
    } else if (stored) {
        stored[at] = narrow(first[0]), stored[half + at] = narrow(second[0]);
    } else {
        own[at] = first[0], own[half + at] = second[0];
    }
}

// Turns a row's queries and keys (blockIdx.x) by their position (half-split, as Hugging Face's Llama has it) and puts keys and
// values into their place. A thread for four neighbouring numbers of each half of a head, or for one if `head_size` is no
// multiple of eight; threads of a row are counted over blockIdx.y. `rotary`: a position's cosines, then its sines.
KERNEL void rotate_store(float* __restrict__ rows, const u32* __restrict__ positions, const u32* __restrict__ places,
                         const float* __restrict__ rotary, Element* __restrict__ keys, Element* __restrict__ values,
                         u32 query_heads, u32 key_value_heads, u32 head_size) {
    const u32 half = head_size / 2, count = head_size % 8 == 0 ? 4 : 1, together = half / count;
    const u32 thread = blockIdx.y * blockDim.x + threadIdx.x, head = thread / together, at = thread % together * count;
    const u32 heads = query_heads + 2 * key_value_heads, first_value = query_heads + key_value_heads;
    if (head >= heads) return;
    float* own = rows + ((u64)blockIdx.x * heads + head) * head_size;
    const float* angles = rotary + (u64)positions[blockIdx.x] * head_size;
    const u64 place = (u64)places[blockIdx.x] * key_value_heads;
    Element* stored = nullptr;
    if (head >= first_value) {
        stored = values + (place + head - first_value) * head_size;
    } else if (head >= query_heads) {
        stored = keys + (place + head - query_heads) * head_size;
    }
    if (count == 4) {
        rotate<4>(own, angles, stored, at, half, head < first_value);
    } else {
        rotate<1>(own, angles, stored, at, half, head < first_value);
    }
}

#define WARPS 4
#define QUERIES_OF_A_WARP 4
#define QUERIES (WARPS * QUERIES_OF_A_WARP)
#define LARGEST_HEAD 256
// Positions whose weights are added up before they join those of earlier positions.
#define PART 256

// Elements of 16 bytes.
#define WIDE (16 / sizeof(Element))

// The place of a position: page number × positions of a page + position within the page.
__device__ __forceinline__ u64 place_of(const u32* pages, u32 position, u32 page_size) {
    if ((page_size & (page_size - 1)) == 0) {
        const u32 shift = 31 - __clz(page_size);
        return ((u64)pages[position >> shift] << shift) + (position & (page_size - 1));
    }
    return (u64)pages[position / page_size] * page_size + position % page_size;
}

// Whether attention of 16-bit types multiplies on tensor cores.
#undef TENSOR_CORES
#if LUMOS_ELEMENT != 0 && (defined(LUMOS_EMULATOR) || __CUDA_ARCH__ >= 800)
#define TENSOR_CORES 1
#else
#define TENSOR_CORES 0
#endif

// A head's numbers of LANES positions on their way to shared memory, where each position has a row of HEAD + WIDE elements:
// rows are aligned to 16 bytes, and lanes that read neighbouring rows use different banks.
template <u32 HEAD>
struct Tile {
    static constexpr u32 CHUNKS = HEAD / WIDE, ALL = LANES * CHUNKS, THREADS = WARPS * LANES;
    static constexpr u32 EACH = (ALL + THREADS - 1) / THREADS;
    uint4 held[EACH];

    // Starts all loads: positions from `start` on, zeros from `end` on. `from` is the head at place 0, places are `width`
    // numbers apart.
    MEMBER void load(const Element* from, const u32* pages, u32 start, u32 end, u32 width, u32,
                                         u32 page_size) {
#pragma unroll
        for (u32 index = 0; index < EACH; ++index) {
            const u32 item = threadIdx.x + index * THREADS, position = start + item / CHUNKS;
            held[index] = make_uint4(0, 0, 0, 0);
            if (item < ALL && position < end) {
                const u64 place = place_of(pages, position, page_size);
                held[index] = *(const uint4*)(from + place * width + item % CHUNKS * WIDE);
            }
        }
    }

    MEMBER void store(Element* tile, u32) const {
#pragma unroll
        for (u32 index = 0; index < EACH; ++index) {
            const u32 item = threadIdx.x + index * THREADS;
            if (item < ALL) *(uint4*)(tile + item / CHUNKS * (HEAD + WIDE) + item % CHUNKS * WIDE) = held[index];
        }
    }
};

// Heads of other sizes are copied element by element, when they are stored.
template <>
struct Tile<0> {
    const Element* from;
    const u32* pages;
    u32 start, end, width, page_size;

    MEMBER void load(const Element* from_, const u32* pages_, u32 start_, u32 end_, u32 width_, u32,
                                         u32 page_size_) {
        from = from_, pages = pages_, start = start_, end = end_, width = width_, page_size = page_size_;
    }

    MEMBER void store(Element* tile, u32 head_size) const {
        const u32 lane = threadIdx.x % LANES;
        for (u32 slot = threadIdx.x / LANES; slot < LANES; slot += WARPS) {
            const u32 position = start + slot;
            Element* to = tile + slot * (head_size + WIDE);
            const u64 place = position < end ? place_of(pages, position, page_size) : 0;
            for (u32 at = lane; at < head_size; at += LANES) {
                to[at] = position < end ? from[place * width + at] : narrow(0.0f);
            }
        }
    }
};

// The running softmax of one query: the highest score and the sum of the weights.
struct Softmax {
    float best, total;

    MEMBER void clear() {
        best = -INFINITE;
        total = 0.0f;
    }
};

// With a lane's part of the weighted sums of values.
template <u32 PARTS>
struct WeightedSums : Softmax {
    float sums[PARTS];

    MEMBER void clear() {
        Softmax::clear();
#pragma unroll
        for (u32 part = 0; part < PARTS; ++part) sums[part] = 0.0f;
    }
};

// The factors of two softmaxes that are joined. Neither may have seen a position.
__device__ __forceinline__ float join_factors(float best, float other, float* factor, float* other_factor) {
    const float highest = fmaxf(best, other);
    const bool any = highest > -INFINITE;
    *factor = any ? expf(best - highest) : 1.0f;
    *other_factor = any ? expf(other - highest) : 0.0f;
    return highest;
}

// Rounded in one way, wherever softmaxes are joined.
__device__ __forceinline__ float joined(float sum, float factor, float other, float other_factor) {
    return __fmaf_rn(sum, factor, __fmul_rn(other, other_factor));
}

// The products of a lane's key with the queries of its warp, each added from the first number to the last.
template <u32 HEAD>
__device__ __forceinline__ void scores_of(const float* queries, const Element* key, u32 count, u32 head_size,
                                          float (&scores)[QUERIES_OF_A_WARP]) {
    const u32 warp = threadIdx.x / LANES, size = HEAD ? HEAD : head_size, wide = HEAD / 4;
#pragma unroll
    for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) scores[index] = 0.0f;
    for (u32 four_at = 0; four_at != wide; ++four_at) {
        const u32 at = 4 * four_at;
        const float4 four = load4(key + at);
#pragma unroll
        for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
            const u32 query = warp + index * WARPS;
            if (query < count) {
                const float4 own = *(const float4*)(queries + query * size + at);
                float score = scores[index];
                score = __fmaf_rn(own.x, four.x, score);
                score = __fmaf_rn(own.y, four.y, score);
                score = __fmaf_rn(own.z, four.z, score);
                scores[index] = __fmaf_rn(own.w, four.w, score);
            }
        }
    }
    for (u32 at = 4 * wide; at < size; ++at) {
        const float number = widen(key[at]);
#pragma unroll
        for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
            const u32 query = warp + index * WARPS;
            if (query < count) scores[index] = __fmaf_rn(queries[query * size + at], number, scores[index]);
        }
    }
}

// What a block of attention works on.
struct Task {
    u32 first_row, count, position, end, first_head, heads, key_head;
    const u32* pages;

    // Where a query's row of outputs begins, counted in heads.
    MEMBER u64 head_of(u32 query, u32 query_heads) const {
        return (u64)(first_row + query / heads) * query_heads + first_head + query % heads;
    }
};

// Joins the positions that `own` has seen to those before them. Returns the factors of both sums of values.
__device__ __forceinline__ void join(Softmax& whole, Softmax& own, float* factor, float* other) {
    whole.best = join_factors(whole.best, own.best, factor, other);
    whole.total = joined(whole.total, *factor, own.total, *other);
}

// Takes a lane's score into a query's softmax. Returns its weight, and the factor of the sums of the positions before.
__device__ __forceinline__ float weigh(Softmax& own, float score, bool visible, float* factor) {
    score = visible ? score : -INFINITE;
    const float highest = fmaxf(own.best, warp_maximum(score));
    // Before the window begins there is nothing to weigh.
    const bool any = highest > -INFINITE;
    *factor = any ? expf(own.best - highest) : 1.0f;
    own.best = highest;
    return any ? expf(score - highest) : 0.0f;
}

// A block's work for heads of HEAD numbers; 0 for any number. Tiles of `first` up to `last` positions.
template <u32 HEAD>
__device__ __forceinline__ void attend(const Task& task, const float* rows, const Element* keys, const Element* values,
                                       Element* output, float* partial, u32 part_count, u32 part, u32 query_heads,
                                       u32 key_value_heads, u32 head_size, u32 page_size, u32 window, float scale) {
    constexpr u32 PARTS = (HEAD ? HEAD + LANES - 1 : LARGEST_HEAD) / LANES;
    SHARED_MEMORY(shared);
    const u32 size = HEAD ? HEAD : head_size, row_size = size + WIDE;
    float* queries = shared;
    float* weights = queries + QUERIES * size;
    Element* tile = (Element*)(weights + QUERIES * LANES);
    const u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const u32 count = task.count, heads = task.heads, position = task.position;
    const u64 stride = (u64)(query_heads + 2 * key_value_heads) * size;
    const u32 width = key_value_heads * size;
    keys += task.key_head * size;
    values += task.key_head * size;

    for (u32 query = warp; query < count; query += WARPS) {
        const float* from =
            rows + (task.first_row + query / heads) * stride + (task.first_head + query % heads) * size;
        for (u32 at = lane; at < size; at += LANES) queries[query * size + at] = from[at] * scale;
    }
    const u32 lowest = window && position + 1 > window ? position + 1 - window : 0;
    u32 start = lowest / LANES * LANES, end = task.end;
    if (partial) {
        start = start < part * PART ? part * PART : start;
        end = end < (part + 1) * PART ? end : (part + 1) * PART;
        if (start >= end) return;
    }
    WeightedSums<PARTS> whole[QUERIES_OF_A_WARP], own[QUERIES_OF_A_WARP];
#pragma unroll
    for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) whole[index].clear(), own[index].clear();
    Tile<HEAD> loaded;
    loaded.load(keys, task.pages, start, end, width, size, page_size);
    for (; start < end; start += LANES) {
        __syncthreads();
        loaded.store(tile, size);
        loaded.load(values, task.pages, start, end, width, size, page_size);
        __syncthreads();
        float scores[QUERIES_OF_A_WARP];
        scores_of<HEAD>(queries, tile + lane * row_size, count, size, scores);
#pragma unroll
        for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
            const u32 query = warp + index * WARPS;
            if (query >= count) continue;
            const u32 place = position + query / heads, seen = start + lane;
            const bool visible = seen <= place && !(window && seen + window <= place);
            float factor;
            const float weight = weigh(own[index], scores[index], visible, &factor);
            own[index].total = own[index].total * factor + warp_sum(weight);
#pragma unroll
            for (u32 number = 0; number < PARTS; ++number) own[index].sums[number] *= factor;
            weights[query * LANES + lane] = weight;
        }
        __syncthreads();
        loaded.store(tile, size);
        const u32 next = start + LANES;
        if (next < end) loaded.load(keys, task.pages, next, end, width, size, page_size);
        __syncthreads();
#pragma unroll 4
        for (u32 slot = 0; slot < LANES; ++slot) {
            float numbers[PARTS];
#pragma unroll
            for (u32 number = 0; number < PARTS; ++number) {
                const u32 at = lane + number * LANES;
                numbers[number] = at < size ? widen(tile[slot * row_size + at]) : 0.0f;
            }
#pragma unroll
            for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
                const u32 query = warp + index * WARPS;
                if (query >= count) continue;
                const float weight = weights[query * LANES + slot];
#pragma unroll
                for (u32 number = 0; number < PARTS; ++number) {
                    own[index].sums[number] = __fmaf_rn(weight, numbers[number], own[index].sums[number]);
                }
            }
        }
        if (partial || (next % PART != 0 && next < end)) continue;
#pragma unroll
        for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
            float factor, other;
            join(whole[index], own[index], &factor, &other);
#pragma unroll
            for (u32 number = 0; number < PARTS; ++number) {
                whole[index].sums[number] = joined(whole[index].sums[number], factor, own[index].sums[number], other);
            }
            own[index].clear();
        }
    }
#pragma unroll
    for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
        const u32 query = warp + index * WARPS;
        if (query >= count) continue;
        const u64 head = task.head_of(query, query_heads);
        const float factor = 1.0f / whole[index].total;
        float* to = partial + (head * part_count + part) * (size + 2);
        if (partial && lane == 0) to[0] = own[index].best, to[1] = own[index].total;
#pragma unroll
        for (u32 number = 0; number < PARTS; ++number) {
            const u32 at = lane + number * LANES;
            if (at >= size) continue;
            if (partial) {
                to[2 + at] = own[index].sums[number];
            } else {
                output[head * size + at] = narrow(whole[index].sums[number] * factor);
            }
        }
    }
}

#if TENSOR_CORES
// A product of tensor cores: `sums` (16 × 8) += `left` (16 × 16) times the columns `first` and `second` (16 × 8). With g = lane / 4
// and t = lane % 4 a lane holds rows g and g + 8, columns 2t and 2t + 1 of the sums.
__device__ __forceinline__ void multiply_add(float (&sums)[4], const u32 (&left)[4], u32 first, u32 second) {
#if defined(LUMOS_EMULATOR)
    emulated_multiply_add(sums, left, first, second, widen);
#else
#if LUMOS_ELEMENT == 1
#define TYPES "f32.bf16.bf16.f32"
#else
#define TYPES "f32.f16.f16.f32"
#endif
    asm("mma.sync.aligned.m16n8k16.row.col." TYPES " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(first), "r"(second));
#endif
}

// Loads four matrices of 8 × 8 elements: lane 8i + j names row j of matrix i, and gets columns 2t and 2t + 1 of row g of each;
// TURNED: rows 2t and 2t + 1 of column g.
template <bool TURNED>
__device__ __forceinline__ void load_matrices(u32 (&numbers)[4], const Element* row) {
#if defined(LUMOS_EMULATOR)
    emulated_load_matrices<TURNED>(numbers, row);
#else
    const u32 address = (u32)__cvta_generic_to_shared(row);
    if (TURNED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(numbers[0]), "=r"(numbers[1]), "=r"(numbers[2]), "=r"(numbers[3]) : "r"(address) : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(numbers[0]), "=r"(numbers[1]), "=r"(numbers[2]), "=r"(numbers[3]) : "r"(address) : "memory");
    }
#endif
}

// Elements or floats of a row of scores in shared memory: lanes that read neighbouring rows use different banks.
#define SCORE_ROW (LANES + 8)

// `attend` on tensor cores, with a block's queries as the 16 rows of each product. A warp computes the scores of LANES / WARPS
// positions with all queries, then the softmax of QUERIES_OF_A_WARP queries as `attend` does, then HEAD / WARPS numbers of all
// outputs. Queries and weights are rounded to elements; a query's sums do not depend on the other rows of a product.
// Shared memory: queries, weights, a tile (elements), scores, two factors of each query (floats).
template <u32 HEAD>
__device__ __forceinline__ void attend_with_tensor_cores(const Task& task, const float* rows, const Element* keys,
                                                         const Element* values, Element* output, float* partial,
                                                         u32 part_count, u32 part, u32 query_heads, u32 key_value_heads,
                                                         u32 page_size, u32 window, float scale) {
    constexpr u32 ROW = HEAD + WIDE, STEPS = HEAD / 16, COLUMNS = HEAD / WARPS / 8;
    SHARED_MEMORY(memory);
    Element* queries = (Element*)memory;
    Element* weights = queries + QUERIES * ROW;
    Element* tile = weights + QUERIES * SCORE_ROW;
    float* scores = (float*)(tile + LANES * ROW);
    float *factors = scores + QUERIES * SCORE_ROW, *others = factors + QUERIES;
    const u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, low = lane / 4, pair = lane % 4 * 2;
    const u32 width = key_value_heads * HEAD, count = task.count;
    const u64 stride = (u64)(query_heads + 2 * key_value_heads) * HEAD;
    keys += task.key_head * HEAD;
    values += task.key_head * HEAD;

    for (u32 query = warp; query < QUERIES; query += WARPS) {
        const float* from = rows + (task.first_row + query / task.heads) * stride +
                            (task.first_head + query % task.heads) * HEAD;
        for (u32 at = lane; at < HEAD; at += LANES) queries[query * ROW + at] = narrow(query < count ? from[at] : 0.0f);
        weights[query * SCORE_ROW + lane] = narrow(0.0f);
        if (lane == 0) factors[query] = 1.0f, others[query] = 0.0f;
    }
    const u32 lowest = window && task.position + 1 > window ? task.position + 1 - window : 0;
    u32 start = lowest / LANES * LANES, end = task.end;
    if (partial) {
        start = start < part * PART ? part * PART : start;
        end = end < (part + 1) * PART ? end : (part + 1) * PART;
        if (start >= end) return;
    }
    Softmax whole[QUERIES_OF_A_WARP], own[QUERIES_OF_A_WARP];
    float whole_sums[COLUMNS][4], sums[COLUMNS][4];
#pragma unroll
    for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) whole[index].clear(), own[index].clear();
#pragma unroll
    for (u32 column = 0; column < COLUMNS; ++column) {
#pragma unroll
        for (u32 at = 0; at < 4; ++at) whole_sums[column][at] = sums[column][at] = 0.0f;
    }
    Tile<HEAD> loaded;
    loaded.load(keys, task.pages, start, end, width, HEAD, page_size);
    for (; start < end; start += LANES) {
        __syncthreads();
        loaded.store(tile, HEAD);
        loaded.load(values, task.pages, start, end, width, HEAD, page_size);
        __syncthreads();
        float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (u32 step = 0; step < STEPS; step += 2) {
            u32 left[4], right[4];
            load_matrices<false>(right, tile + (warp * 8 + lane % 8) * ROW + step * 16 + lane / 8 * 8);
            load_matrices<false>(left, queries + lane % 16 * ROW + step * 16 + lane / 16 * 8);
            multiply_add(products, left, right[0], right[1]);
            load_matrices<false>(left, queries + lane % 16 * ROW + step * 16 + 16 + lane / 16 * 8);
            multiply_add(products, left, right[2], right[3]);
        }
        float* score = scores + low * SCORE_ROW + warp * 8 + pair;
        score[0] = products[0], score[1] = products[1];
        score[8 * SCORE_ROW] = products[2], score[8 * SCORE_ROW + 1] = products[3];
        __syncthreads();
        loaded.store(tile, HEAD);
        const u32 next = start + LANES;
        if (next < end) loaded.load(keys, task.pages, next, end, width, HEAD, page_size);
#pragma unroll
        for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
            const u32 query = warp + index * WARPS;
            if (query >= count) continue;
            const u32 place = task.position + query / task.heads, seen = start + lane;
            const bool visible = seen <= place && !(window && seen + window <= place);
            float factor;
            const Element weight =
                narrow(weigh(own[index], scores[query * SCORE_ROW + lane] * scale, visible, &factor));
            own[index].total = own[index].total * factor + warp_sum(widen(weight));
            weights[query * SCORE_ROW + lane] = weight;
            if (lane == 0) factors[query] = factor;
        }
        __syncthreads();
        u32 left[2][4];
        load_matrices<false>(left[0], weights + lane % 16 * SCORE_ROW + lane / 16 * 8);
        load_matrices<false>(left[1], weights + lane % 16 * SCORE_ROW + 16 + lane / 16 * 8);
        const float factor = factors[low], high_factor = factors[low + 8];
#pragma unroll
        for (u32 column = 0; column < COLUMNS; ++column) {
            u32 right[4];
            load_matrices<true>(right, tile + lane * ROW + (warp * COLUMNS + column) * 8);
            sums[column][0] *= factor, sums[column][1] *= factor;
            sums[column][2] *= high_factor, sums[column][3] *= high_factor;
            multiply_add(sums[column], left[0], right[0], right[1]);
            multiply_add(sums[column], left[1], right[2], right[3]);
        }
        if (partial || (next % PART != 0 && next < end)) continue;
        __syncthreads();
#pragma unroll
        for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
            const u32 query = warp + index * WARPS;
            float joining, other;
            join(whole[index], own[index], &joining, &other);
            own[index].clear();
            if (lane == 0) factors[query] = joining, others[query] = other;
        }
        __syncthreads();
#pragma unroll
        for (u32 column = 0; column < COLUMNS; ++column) {
#pragma unroll
            for (u32 at = 0; at < 4; ++at) {
                const u32 query = low + at / 2 * 8;
                whole_sums[column][at] =
                    joined(whole_sums[column][at], factors[query], sums[column][at], others[query]);
                sums[column][at] = 0.0f;
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
        const u32 query = warp + index * WARPS;
        if (query >= count || lane > 0) continue;
        factors[query] = 1.0f / whole[index].total;
        float* to = partial + (task.head_of(query, query_heads) * part_count + part) * (HEAD + 2);
        if (partial) to[0] = own[index].best, to[1] = own[index].total;
    }
    __syncthreads();
#pragma unroll
    for (u32 column = 0; column < COLUMNS; ++column) {
#pragma unroll
        for (u32 at = 0; at < 4; ++at) {
            const u32 query = low + at / 2 * 8, number = (warp * COLUMNS + column) * 8 + pair + at % 2;
            if (query >= count) continue;
            const u64 head = task.head_of(query, query_heads);
            if (partial) {
                partial[(head * part_count + part) * (HEAD + 2) + 2 + number] = sums[column][at];
            } else {
                output[head * HEAD + number] = narrow(whole_sums[column][at] * factors[query]);
            }
        }
    }
}
#endif

// Causal attention over pages. One block for neighbouring rows of one sequence (blockIdx.x) and for query heads that
// read the same keys (blockIdx.y), QUERIES pairs of both at most; WARPS warps. Keys are read LANES positions at a time:
// a lane has the score of one position, then of every LANES-th number of the output. The loads of a tile are started before
// the arithmetic of the one before it. The running softmax goes from tile to tile in the order of positions, for PART
// positions each, which then join those before them, whatever else is in the block.
//
// With `partial`, which holds the best score, the total and the sums of each row, query head and part, a block computes one
// of `part_count` parts (blockIdx.y % part_count), and `join_parts` joins them in the same way. This fills a GPU with few
// sequences, and does not change a bit.
//
// `tasks`: first row, number of rows, position of the first row, start of the sequence's pages in `tables`. `rows`
// start with the queries. `window`: positions that a row sees, itself included; 0 for all. `head_size` is at most
// LARGEST_HEAD.
// Shared memory: QUERIES × head_size queries, QUERIES × LANES weights, LANES × (head_size + WIDE) keys or values; on tensor
// cores, which 16-bit types with the usual sizes of heads use from compute capability 8.0 on, as said there.
template <u32 HEAD>
__device__ __forceinline__ void attention_block(const float* __restrict__ rows, const u32* __restrict__ tasks,
                                                const u32* __restrict__ tables, const Element* __restrict__ keys,
                                                const Element* __restrict__ values, Element* __restrict__ output,
                                                float* __restrict__ partial, u32 part_count, u32 query_heads,
                                                u32 key_value_heads, u32 head_size, u32 page_size, u32 window,
                                                float scale) {
    const u32 group = query_heads / key_value_heads;
    const u32 together = group < QUERIES ? group : QUERIES, blocks = (group + together - 1) / together;
    const u32 block = blockIdx.y / part_count, part = blockIdx.y % part_count;
    const u32* numbers = tasks + 4 * blockIdx.x;
    Task task;
    task.key_head = block / blocks;
    task.first_head = task.key_head * group + block % blocks * together;
    const u32 left = (task.key_head + 1) * group - task.first_head;
    task.heads = left < together ? left : together;
    task.first_row = numbers[0];
    task.count = numbers[1] * task.heads;
    task.position = numbers[2];
    task.end = task.position + numbers[1];
    task.pages = tables + numbers[3];
#if TENSOR_CORES
    if constexpr (HEAD > 0) {
        attend_with_tensor_cores<HEAD>(task, rows, keys, values, output, partial, part_count, part, query_heads,
                                       key_value_heads, page_size, window, scale);
    } else
#endif
        attend<HEAD>(task, rows, keys, values, output, partial, part_count, part, query_heads, key_value_heads, head_size,
                     page_size, window, scale);
}

// One kernel for each usual size of heads, and `attention` for any.
#define ATTENTION(name, HEAD)                                                                                         \
    KERNEL void                                                                                                        \
        name(const float* __restrict__ rows, const u32* __restrict__ tasks, const u32* __restrict__ tables,           \
             const Element* __restrict__ keys, const Element* __restrict__ values, Element* __restrict__ output,      \
             float* __restrict__ partial, u32 part_count, u32 query_heads, u32 key_value_heads, u32 head_size,        \
             u32 page_size, u32 window, float scale) {                                                                \
        attention_block<HEAD>(rows, tasks, tables, keys, values, output, partial, part_count, query_heads,            \
                              key_value_heads, head_size, page_size, window, scale);                                  \
    }
ATTENTION(attention, 0)
ATTENTION(attention_32, 32)
ATTENTION(attention_64, 64)
ATTENTION(attention_128, 128)

// Joins the parts of attention: a block for a row (blockIdx.x) and a query head (blockIdx.y). `positions`: of each row.
KERNEL void join_parts(const float* __restrict__ partial, const u32* __restrict__ positions, Element* __restrict__ output,
                       u32 part_count, u32 query_heads, u32 head_size, u32 window) {
    const u32 position = positions[blockIdx.x], lowest = window && position + 1 > window ? position + 1 - window : 0;
    const u64 head = (u64)blockIdx.x * query_heads + blockIdx.y;
    for (u32 at = threadIdx.x; at < head_size; at += blockDim.x) {
        float best = -INFINITE, total = 0.0f, sum = 0.0f;
        for (u32 part = lowest / PART; part <= position / PART; ++part) {
            const float* from = partial + (head * part_count + part) * (head_size + 2);
            float factor, other;
            best = join_factors(best, from[0], &factor, &other);
            total = joined(total, factor, from[1], other);
            sum = joined(sum, factor, from[2 + at], other);
        }
        output[head * head_size + at] = narrow(sum * (1.0f / total));
    }
}

// SiLU of the gate times up; a row of `gate_up` holds `width` of the one, then of the other. A block for blockDim.x
// numbers (blockIdx.y) of a row (blockIdx.x).
KERNEL void gated(const float* gate_up, Element* product, u32 width) {
    const u32 at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= width) return;
    const float* row = gate_up + (u64)blockIdx.x * 2 * width;
    const float gate = row[at];
    product[(u64)blockIdx.x * width + at] = narrow(gate / (1.0f + expf(-gate)) * row[width + at]);
}
