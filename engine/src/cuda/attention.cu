// Causal attention over pages, which follows kernels.cu.

#define WARPS 4
#define QUERIES_OF_A_WARP 4
#define QUERIES (WARPS * QUERIES_OF_A_WARP)
// Queries of a prompt that a block handles on tensor cores: 16 for each warp.
#define MANY_QUERIES (WARPS * 16)
#define LARGEST_HEAD 256
// Positions whose weights are added up before they join those of earlier positions.
#define PART 128

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

// The highest score of a query if a tile has `highest`, and the factor of the sums of the positions before.
__device__ __forceinline__ float raise(Softmax& own, float highest) {
    highest = fmaxf(own.best, highest);
    // Before the window begins there is nothing to weigh.
    const float factor = highest > -INFINITE ? expf(own.best - highest) : 1.0f;
    own.best = highest;
    return factor;
}

// The weight of a score that has been seen.
__device__ __forceinline__ float weight_of(const Softmax& own, float score) {
    return own.best > -INFINITE ? expf(score - own.best) : 0.0f;
}

// Takes a lane's score into a query's softmax. Returns its weight, and the factor of the sums of the positions before.
__device__ __forceinline__ float weigh(Softmax& own, float score, bool visible, float* factor) {
    score = visible ? score : -INFINITE;
    *factor = raise(own, warp_maximum(score));
    return weight_of(own, score);
}

// Whether a row at `place` sees a position.
__device__ __forceinline__ bool is_visible(u32 place, u32 seen, u32 window) {
    return seen <= place && !(window && seen + window <= place);
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
            const bool visible = is_visible(position + query / heads, start + lane, window);
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

#if defined(LUMOS_EMULATOR)
#define copy_async emulated_copy_async
#define commit_copies emulated_commit_copies
#define wait_for_copies emulated_wait_for_copies
#else
// Starts a copy of 16 bytes to shared memory, of zeros if `from` is not `present`.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool present) {
    const u32 address = (u32)__cvta_generic_to_shared(to), bytes = present ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}
// Ends a group of copies.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's last groups are under way.
template <u32 PENDING>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
#endif

// Tiles that are copied while one is used.
#define AHEAD 1

// Keys and values of AHEAD + 1 tiles in shared memory: while one is used, the next ones are copied. A position has a row of
// HEAD + WIDE elements: rows are aligned to 16 bytes, and lanes that read neighbouring rows use different banks.
template <u32 HEAD>
struct Ring {
    static constexpr u32 ROW = HEAD + WIDE, TILE = LANES * ROW, ELEMENTS = 2 * (AHEAD + 1) * TILE;
    Element* memory;
    const Element *from_keys, *from_values;
    const u32* pages;
    u32 end, width, page_size;

    MEMBER Element* keys(u32 start) const { return memory + start / LANES % (AHEAD + 1) * 2 * TILE; }
    MEMBER Element* values(u32 start) const { return keys(start) + TILE; }

    // Starts the copies of LANES positions, zeros from `end` on: a group for the keys, and one for the values. The groups of a
    // tile behind the last one are empty.
    MEMBER void copy(u32 start) const {
        constexpr u32 CHUNKS = HEAD / WIDE, EACH = LANES * CHUNKS / (WARPS * LANES), APART = WARPS * LANES / CHUNKS;
        const u32 slot = threadIdx.x / CHUNKS, at = threadIdx.x % CHUNKS * WIDE, first = start + slot;
        u32 places[EACH];
        if (start < end) {
            // With one branch for all of them, and all loads of page numbers before the first copy.
            if ((page_size & (page_size - 1)) == 0) {
                const u32 shift = 31 - __clz(page_size);
#pragma unroll
                for (u32 index = 0; index < EACH; ++index) {
                    const u32 position = first + index * APART, known = position < end ? position : end - 1;
                    places[index] = (pages[known >> shift] << shift) + (known & (page_size - 1));
                }
            } else {
#pragma unroll
                for (u32 index = 0; index < EACH; ++index) {
                    const u32 position = first + index * APART, known = position < end ? position : end - 1;
                    places[index] = pages[known / page_size] * page_size + known % page_size;
                }
            }
            copy_to(keys(start) + slot * ROW + at, from_keys + at, places, first);
        }
        commit_copies();
        if (start < end) copy_to(values(start) + slot * ROW + at, from_values + at, places, first);
        commit_copies();
    }

    template <u32 EACH>
    MEMBER void copy_to(Element* to, const Element* from, const u32 (&places)[EACH], u32 first) const {
        constexpr u32 APART = LANES / EACH;
#pragma unroll
        for (u32 index = 0; index < EACH; ++index) {
            copy_async(to + index * APART * ROW, from + (u64)places[index] * width, first + index * APART < end);
        }
    }
};

// Elements or floats of a row of scores in shared memory: lanes that read neighbouring rows use different banks.
#define SCORE_ROW (LANES + 8)

// `attend` on tensor cores, with a block's queries as the 16 rows of each product. A warp computes the scores of LANES / WARPS
// positions with all queries, then the softmax of QUERIES_OF_A_WARP queries as `attend` does, then HEAD / WARPS numbers of all
// outputs. Queries and weights are rounded to elements; a query's sums do not depend on the other rows of a product.
// Shared memory: a ring, queries, weights (elements), scores, two factors of each query (floats).
template <u32 HEAD>
__device__ __forceinline__ void attend_with_tensor_cores(const Task& task, Ring<HEAD>& ring, const float* rows,
                                                         Element* output, float* partial, u32 part_count, u32 part,
                                                         u32 query_heads, u64 stride, u32 start, u32 window, float scale) {
    constexpr u32 ROW = Ring<HEAD>::ROW, STEPS = HEAD / 16, COLUMNS = HEAD / WARPS / 8;
    Element* queries = ring.memory + Ring<HEAD>::ELEMENTS;
    Element* weights = queries + QUERIES * ROW;
    float* scores = (float*)(weights + QUERIES * SCORE_ROW);
    float *factors = scores + QUERIES * SCORE_ROW, *others = factors + QUERIES;
    const u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, low = lane / 4, pair = lane % 4 * 2;
    const u32 count = task.count, end = ring.end;

    for (u32 query = warp; query < QUERIES; query += WARPS) {
        const float* from = rows + (task.first_row + query / task.heads) * stride +
                            (task.first_head + query % task.heads) * HEAD;
        for (u32 at = lane; at < HEAD; at += LANES) queries[query * ROW + at] = narrow(query < count ? from[at] : 0.0f);
        weights[query * SCORE_ROW + lane] = narrow(0.0f);
        if (lane == 0) factors[query] = 1.0f, others[query] = 0.0f;
    }
    u32 places[QUERIES_OF_A_WARP];
#pragma unroll
    for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) places[index] = task.position + (warp + index * WARPS) / task.heads;
    Softmax whole[QUERIES_OF_A_WARP], own[QUERIES_OF_A_WARP];
    float whole_sums[COLUMNS][4], sums[COLUMNS][4];
#pragma unroll
    for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) whole[index].clear(), own[index].clear();
#pragma unroll
    for (u32 column = 0; column < COLUMNS; ++column) {
#pragma unroll
        for (u32 at = 0; at < 4; ++at) whole_sums[column][at] = sums[column][at] = 0.0f;
    }
    for (; start < end; start += LANES) {
        const u32 next = start + LANES;
        // The keys are there; and all warps are done with the tile before, whose place the next one takes.
        wait_for_copies<2 * AHEAD - 1>();
        __syncthreads();
        ring.copy(start + AHEAD * LANES);
        float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        const Element* tile = ring.keys(start);
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
#pragma unroll
        for (u32 index = 0; index < QUERIES_OF_A_WARP; ++index) {
            const u32 query = warp + index * WARPS;
            if (query >= count) continue;
            const bool visible = is_visible(places[index], start + lane, window);
            float factor;
            const Element weight =
                narrow(weigh(own[index], __fmul_rn(scores[query * SCORE_ROW + lane], scale), visible, &factor));
            own[index].total = __fmaf_rn(own[index].total, factor, warp_sum(widen(weight)));
            weights[query * SCORE_ROW + lane] = weight;
            if (lane == 0) factors[query] = factor;
        }
        wait_for_copies<2 * AHEAD>();
        __syncthreads();
        tile = ring.values(start);
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
            if (query >= count) continue;
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

// The same for up to MANY_QUERIES queries, 16 of each warp, which waits for the others only for tiles. A lane has the scores of
// two queries (its place in a product's rows) with eight positions. Every number of a query is computed in the same order.
// Shared memory: a ring, queries (elements).
template <u32 HEAD>
__device__ __forceinline__ void attend_many(const Task& task, Ring<HEAD>& ring, const float* rows, Element* output,
                                            float* partial, u32 part_count, u32 part, u32 query_heads, u64 stride,
                                            u32 start, u32 window, float scale) {
    constexpr u32 ROW = Ring<HEAD>::ROW, STEPS = HEAD / 16, COLUMNS = HEAD / 8, FOURTHS = LANES / 8;
    const u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, pair = lane % 4 * 2, end = ring.end;
    Element* queries = ring.memory + Ring<HEAD>::ELEMENTS + warp * 16 * ROW;
    for (u32 index = 0; index < 16; ++index) {
        const u32 query = warp * 16 + index;
        const float* from = rows + (task.first_row + query / task.heads) * stride +
                            (task.first_head + query % task.heads) * HEAD;
        for (u32 at = lane; at < HEAD; at += LANES) queries[index * ROW + at] = narrow(query < task.count ? from[at] : 0.0f);
    }
    // Of the lane's two queries.
    const u32 own_query[2] = {warp * 16 + lane / 4, warp * 16 + lane / 4 + 8};
    const u32 place[2] = {task.position + own_query[0] / task.heads, task.position + own_query[1] / task.heads};
    Softmax whole[2], own[2];
    float whole_sums[COLUMNS][4], sums[COLUMNS][4];
    for (u32 one = 0; one < 2; ++one) whole[one].clear(), own[one].clear();
#pragma unroll
    for (u32 column = 0; column < COLUMNS; ++column) {
#pragma unroll
        for (u32 at = 0; at < 4; ++at) whole_sums[column][at] = sums[column][at] = 0.0f;
    }
    for (; start < end; start += LANES) {
        const u32 next = start + LANES;
        wait_for_copies<2 * AHEAD - 2>();
        __syncthreads();
        ring.copy(start + AHEAD * LANES);
        const Element* tile = ring.keys(start);
        float scores[FOURTHS][4];
#pragma unroll
        for (u32 fourth = 0; fourth < FOURTHS; ++fourth) {
#pragma unroll
            for (u32 at = 0; at < 4; ++at) scores[fourth][at] = 0.0f;
        }
#pragma unroll
        for (u32 step = 0; step < STEPS; step += 2) {
            u32 left[4], other_left[4];
            load_matrices<false>(left, queries + lane % 16 * ROW + step * 16 + lane / 16 * 8);
            load_matrices<false>(other_left, queries + lane % 16 * ROW + step * 16 + 16 + lane / 16 * 8);
#pragma unroll
            for (u32 fourth = 0; fourth < FOURTHS; ++fourth) {
                u32 right[4];
                load_matrices<false>(right, tile + (fourth * 8 + lane % 8) * ROW + step * 16 + lane / 8 * 8);
                multiply_add(scores[fourth], left, right[0], right[1]);
                multiply_add(scores[fourth], other_left, right[2], right[3]);
            }
        }
        float factors[2];
        u32 weights[FOURTHS][2];
#pragma unroll
        for (u32 one = 0; one < 2; ++one) {
            float highest = -INFINITE;
#pragma unroll
            for (u32 fourth = 0; fourth < FOURTHS; ++fourth) {
#pragma unroll
                for (u32 at = 0; at < 2; ++at) {
                    float& score = scores[fourth][2 * one + at];
                    const bool visible = is_visible(place[one], start + fourth * 8 + pair + at, window);
                    score = visible ? __fmul_rn(score, scale) : -INFINITE;
                    highest = fmaxf(highest, score);
                }
            }
            highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 1));
            factors[one] = raise(own[one], fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 2)));
            // As `warp_sum` adds the positions: those that are 16 apart, 8, 4, 2 and 1.
            float totals[2];
#pragma unroll
            for (u32 at = 0; at < 2; ++at) {
                float values[FOURTHS];
#pragma unroll
                for (u32 fourth = 0; fourth < FOURTHS; ++fourth) {
                    const Element weight = narrow(weight_of(own[one], scores[fourth][2 * one + at]));
                    weights[fourth][one] = at == 0 ? weight : weights[fourth][one] | (u32)weight << 16;
                    values[fourth] = widen(weight);
                }
                totals[at] = (values[0] + values[2]) + (values[1] + values[3]);
                totals[at] += __shfl_xor_sync(ALL_LANES, totals[at], 2);
                totals[at] += __shfl_xor_sync(ALL_LANES, totals[at], 1);
            }
            own[one].total = __fmaf_rn(own[one].total, factors[one], totals[0] + totals[1]);
        }
        const u32 left[2][4] = {{weights[0][0], weights[0][1], weights[1][0], weights[1][1]},
                                {weights[2][0], weights[2][1], weights[3][0], weights[3][1]}};
        tile = ring.values(start);
#pragma unroll
        for (u32 column = 0; column < COLUMNS; ++column) {
            u32 right[4];
            load_matrices<true>(right, tile + lane * ROW + column * 8);
            sums[column][0] *= factors[0], sums[column][1] *= factors[0];
            sums[column][2] *= factors[1], sums[column][3] *= factors[1];
            multiply_add(sums[column], left[0], right[0], right[1]);
            multiply_add(sums[column], left[1], right[2], right[3]);
        }
        if (partial || (next % PART != 0 && next < end)) continue;
        float joining[2], others[2];
#pragma unroll
        for (u32 one = 0; one < 2; ++one) {
            join(whole[one], own[one], &joining[one], &others[one]);
            own[one].clear();
        }
#pragma unroll
        for (u32 column = 0; column < COLUMNS; ++column) {
#pragma unroll
            for (u32 at = 0; at < 4; ++at) {
                whole_sums[column][at] = joined(whole_sums[column][at], joining[at / 2], sums[column][at], others[at / 2]);
                sums[column][at] = 0.0f;
            }
        }
    }
#pragma unroll
    for (u32 one = 0; one < 2; ++one) {
        if (own_query[one] >= task.count) continue;
        const u64 head = task.head_of(own_query[one], query_heads);
        float* to = partial + (head * part_count + part) * (HEAD + 2);
        if (partial && pair == 0) to[0] = own[one].best, to[1] = own[one].total;
        const float factor = 1.0f / whole[one].total;
#pragma unroll
        for (u32 column = 0; column < COLUMNS; ++column) {
#pragma unroll
            for (u32 at = 0; at < 2; ++at) {
                const u32 number = column * 8 + pair + at;
                if (partial) {
                    to[2 + number] = sums[column][2 * one + at];
                } else {
                    output[head * HEAD + number] = narrow(whole_sums[column][2 * one + at] * factor);
                }
            }
        }
    }
}

// A block's work on tensor cores.
template <u32 HEAD, bool MANY>
__device__ __forceinline__ void attend_on_tensor_cores(const Task& task, const float* rows, const Element* keys,
                                                       const Element* values, Element* output, float* partial,
                                                       u32 part_count, u32 part, u32 query_heads, u32 key_value_heads,
                                                       u32 page_size, u32 window, float scale) {
    SHARED_MEMORY(memory);
    const u32 lowest = window && task.position + 1 > window ? task.position + 1 - window : 0;
    u32 start = lowest / LANES * LANES, end = task.end;
    if (partial) {
        start = start < part * PART ? part * PART : start;
        end = end < (part + 1) * PART ? end : (part + 1) * PART;
        if (start >= end) return;
    }
    Ring<HEAD> ring = {(Element*)memory,
                       keys + task.key_head * HEAD,
                       values + task.key_head * HEAD,
                       task.pages,
                       end,
                       key_value_heads * HEAD,
                       page_size};
    for (u32 ahead = 0; ahead < AHEAD; ++ahead) ring.copy(start + ahead * LANES);
    const u64 stride = (u64)(query_heads + 2 * key_value_heads) * HEAD;
    if constexpr (MANY) {
        if (task.count > QUERIES) {
            attend_many<HEAD>(task, ring, rows, output, partial, part_count, part, query_heads, stride, start, window, scale);
            return;
        }
    }
    attend_with_tensor_cores<HEAD>(task, ring, rows, output, partial, part_count, part, query_heads, stride, start, window,
                                   scale);
}
#endif

// Causal attention over pages. One block for neighbouring rows of one sequence (blockIdx.x) and for query heads that
// read the same keys (blockIdx.y), MANY_QUERIES pairs of both at most; WARPS warps. Keys are read LANES positions at a time:
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
//
// MANY: tasks may have more than QUERIES pairs, which takes more registers.
template <u32 HEAD, bool MANY>
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
        attend_on_tensor_cores<HEAD, MANY>(task, rows, keys, values, output, partial, part_count, part, query_heads,
                                           key_value_heads, page_size, window, scale);
        return;
    }
#endif
    const u32 last = task.end, together_rows = QUERIES / task.heads;
    while (true) {
        task.end = last - task.position < together_rows ? last : task.position + together_rows;
        task.count = (task.end - task.position) * task.heads;
        attend<HEAD>(task, rows, keys, values, output, partial, part_count, part, query_heads, key_value_heads, head_size,
                     page_size, window, scale);
        if (task.end == last) return;
        task.first_row += together_rows;
        task.position = task.end;
        __syncthreads();
    }
}

// Kernels for usual sizes of heads, and `attention` for any.
#define ATTENTION(name, HEAD, MANY)                                                                                    \
    KERNEL void                                                                                                        \
        name(const float* __restrict__ rows, const u32* __restrict__ tasks, const u32* __restrict__ tables,           \
             const Element* __restrict__ keys, const Element* __restrict__ values, Element* __restrict__ output,      \
             float* __restrict__ partial, u32 part_count, u32 query_heads, u32 key_value_heads, u32 head_size,        \
             u32 page_size, u32 window, float scale) {                                                                \
        attention_block<HEAD, MANY>(rows, tasks, tables, keys, values, output, partial, part_count, query_heads,      \
                                    key_value_heads, head_size, page_size, window, scale);                            \
    }
ATTENTION(attention, 0, true)
ATTENTION(attention_32, 32, false)
ATTENTION(attention_64, 64, false)
ATTENTION(attention_128, 128, false)
ATTENTION(attention_many_32, 32, true)
ATTENTION(attention_many_64, 64, true)
ATTENTION(attention_many_128, 128, true)

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
