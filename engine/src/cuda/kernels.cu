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

// SiLU of the gate times up; a row of `gate_up` holds `width` of the one, then of the other. A block for blockDim.x
// numbers (blockIdx.y) of a row (blockIdx.x).
KERNEL void gated(const float* gate_up, Element* product, u32 width) {
    const u32 at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= width) return;
    const float* row = gate_up + (u64)blockIdx.x * 2 * width;
    const float gate = row[at];
    product[(u64)blockIdx.x * width + at] = narrow(gate / (1.0f + expf(-gate)) * row[width + at]);
}
