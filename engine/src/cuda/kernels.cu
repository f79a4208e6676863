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

// One block an output row: adds `update`, if there is one, to the row of `hidden`, and scales the sum to a root mean
// square of one and by `weight`. `rows` names the rows of `hidden`; without it they are the blocks' own.
// Shared memory: one float a warp.
KERNEL void rms_norm(const u32* rows, float* hidden, const float* update, const float* weight,
                                    Element* output, u32 width, float epsilon) {
    SHARED_MEMORY(sums);
    const u64 row = rows ? rows[blockIdx.x] : blockIdx.x;
    float* values = hidden + row * width;
    float sum = 0.0f;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) {
        float value = values[at];
        if (update) {
            value += update[row * width + at];
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
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) to[at] = narrow(values[at] * scale * weight[at]);
}

// One block a row of queries, keys and values: turns queries and keys by their position (half-split, as Hugging Face's
// Llama has it) and puts keys and values into their place. `rotary`: a position's cosines, then its sines.
KERNEL void rotate_store(float* rows, const u32* positions, const u32* places, const float* rotary,
                                        Element* keys, Element* values, u32 query_heads, u32 key_value_heads,
                                        u32 head_size) {
    const u32 half = head_size / 2, width = key_value_heads * head_size;
    float* row = rows + (u64)blockIdx.x * ((query_heads + 2 * key_value_heads) * head_size);
    const float* angles = rotary + (u64)positions[blockIdx.x] * head_size;
    const u64 place = (u64)places[blockIdx.x] * width;
    for (u32 pair = threadIdx.x; pair < (query_heads + key_value_heads) * half; pair += blockDim.x) {
        const u32 head = pair / half, at = pair % half;
        float* low = row + head * head_size + at;
        const float first = low[0], second = low[half], cosine = angles[at], sine = angles[half + at];
        const float turned = first * cosine - second * sine, other = second * cosine + first * sine;
        if (head < query_heads) {
            low[0] = turned;
            low[half] = other;
        } else {
            Element* key = keys + place + (head - query_heads) * head_size + at;
            key[0] = narrow(turned);
            key[half] = narrow(other);
        }
    }
    const float* value = row + (query_heads + key_value_heads) * head_size;
    for (u32 at = threadIdx.x; at < width; at += blockDim.x) values[place + at] = narrow(value[at]);
}

#define WARPS 4
#define QUERIES_OF_A_WARP 4
#define QUERIES (WARPS * QUERIES_OF_A_WARP)
#define MOST_PARTS 8

// A head's numbers of LANES positions from `start` on, zeros from `end` on: a row of `tile`, which is one number wider than
// a head, for each. `from` is the head at place 0, places are `width` numbers apart.
__device__ __forceinline__ void load_tile(const Element* from, const u32* pages, float* tile, u32 start, u32 end,
                                          u32 width, u32 head_size, u32 page_size) {
    const u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    for (u32 slot = warp; slot < LANES; slot += WARPS) {
        const u32 position = start + slot;
        float* to = tile + slot * (head_size + 1);
        if (position < end) {
            const u64 place = (u64)pages[position / page_size] * page_size + position % page_size;
            for (u32 at = lane; at < head_size; at += LANES) to[at] = widen(from[place * width + at]);
        } else {
            for (u32 at = lane; at < head_size; at += LANES) to[at] = 0.0f;
        }
    }
}

// Causal attention over pages. One block for neighbouring rows of one sequence (blockIdx.x) and for query heads that
// read the same keys (blockIdx.y), QUERIES pairs of both at most; WARPS warps. Keys are read LANES positions at a time:
// a lane has the score of one position, then of every LANES-th number of the output. The running softmax goes from
// tile to tile in the order of positions, whatever else is in the block.
//
// `tasks`: first row, number of rows, position of the first row, start of the sequence's pages in `tables`. `rows`
// start with the queries. `window`: positions that a row sees, itself included; 0 for all. `head_size` is at most
// LANES × MOST_PARTS.
// Shared memory: QUERIES × head_size queries, LANES × (head_size + 1) keys or values, QUERIES × LANES weights.
KERNEL void attention(const float* rows, const u32* tasks, const u32* tables, const Element* keys,
                                     const Element* values, Element* output, u32 query_heads, u32 key_value_heads,
                                     u32 head_size, u32 page_size, u32 window, float scale) {
    SHARED_MEMORY(shared);
    float* queries = shared;
    float* tile = queries + QUERIES * head_size;
    float* weights = tile + LANES * (head_size + 1);
    const u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const u32 group = query_heads / key_value_heads;
    const u32 together = group < QUERIES ? group : QUERIES, parts = (group + together - 1) / together;
    const u32 key_head = blockIdx.y / parts, first_head = key_head * group + blockIdx.y % parts * together;
    const u32 left = (key_head + 1) * group - first_head, heads = left < together ? left : together;
    const u32* task = tasks + 4 * blockIdx.x;
    const u32 first_row = task[0], count = task[1] * heads, position = task[2], end = position + task[1];
    const u32* pages = tables + task[3];
    const u64 stride = (u64)(query_heads + 2 * key_value_heads) * head_size;
    const u32 width = key_value_heads * head_size;

    for (u32 query = warp; query < count; query += WARPS) {
        const float* from = rows + (first_row + query / heads) * stride + (first_head + query % heads) * head_size;
        for (u32 at = lane; at < head_size; at += LANES) queries[query * head_size + at] = from[at] * scale;
    }
    float best[QUERIES_OF_A_WARP], total[QUERIES_OF_A_WARP], sums[QUERIES_OF_A_WARP][MOST_PARTS];
#pragma unroll
    for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
        best[index] = -INFINITE;
        total[index] = 0.0f;
#pragma unroll
        for (u32 part = 0; part < MOST_PARTS; ++part) sums[index][part] = 0.0f;
    }
    const u32 lowest = window && position + 1 > window ? position + 1 - window : 0;
    for (u32 start = lowest / LANES * LANES; start < end; start += LANES) {
        __syncthreads();
        load_tile(keys + key_head * head_size, pages, tile, start, end, width, head_size, page_size);
        __syncthreads();
#pragma unroll
        for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
            const u32 query = warp + index * WARPS;
            if (query >= count) break;
            const u32 own = position + query / heads, seen = start + lane;
            float score = -INFINITE;
            if (seen <= own && !(window && seen + window <= own)) {
                score = 0.0f;
                const float* numbers = queries + query * head_size;
                const float* key = tile + lane * (head_size + 1);
                for (u32 at = 0; at < head_size; ++at) score += numbers[at] * key[at];
            }
            const float highest = fmaxf(best[index], warp_maximum(score));
            // Before the window begins there is nothing to weigh.
            const bool any = highest > -INFINITE;
            const float weight = any ? expf(score - highest) : 0.0f;
            const float factor = any ? expf(best[index] - highest) : 1.0f;
            best[index] = highest;
            total[index] = total[index] * factor + warp_sum(weight);
#pragma unroll
            for (u32 part = 0; part < MOST_PARTS; ++part) sums[index][part] *= factor;
            weights[query * LANES + lane] = weight;
        }
        __syncthreads();
        load_tile(values + key_head * head_size, pages, tile, start, end, width, head_size, page_size);
        __syncthreads();
#pragma unroll
        for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
            const u32 query = warp + index * WARPS;
            if (query >= count) break;
            for (u32 slot = 0; slot < LANES; ++slot) {
                const float weight = weights[query * LANES + slot];
                const float* value = tile + slot * (head_size + 1);
#pragma unroll
                for (u32 part = 0; part < MOST_PARTS; ++part) {
                    const u32 at = lane + part * LANES;
                    if (at < head_size) sums[index][part] += weight * value[at];
                }
            }
        }
    }
#pragma unroll
    for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
        const u32 query = warp + index * WARPS;
        if (query >= count) break;
        Element* to = output + ((u64)(first_row + query / heads) * query_heads + first_head + query % heads) * head_size;
        const float factor = 1.0f / total[index];
#pragma unroll
        for (u32 part = 0; part < MOST_PARTS; ++part) {
            const u32 at = lane + part * LANES;
            if (at < head_size) to[at] = narrow(sums[index][part] * factor);
        }
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
