// Which token follows: the one with the highest logit, or one that is drawn. What a draw is, engine/src/sampler says: the
// same numbers here, in another order. Only integers are added up, so that the order does not matter.

#define CHOOSERS 1024
#define RULE 5
#define NOT_FINITE 0xffffffffu
#define DIGITS 256
#define GROUPS 32
// Sums of each digit that are added up side by side: lanes with equal digits wait for each other less.
#define COPIES 8

// What a distance has behind its point, from where on it weighs nothing, and the polynomial: as in sampler/weight.rs.
#define POINT 25
#define HIGHEST 40
#define FARTHEST 1375731712.0f

// Logits of which those stay that have a higher key, and those with this one up to an id.
struct Row {
    const float* logits;
    u32 vocabulary;
    float highest, scale;
    u32 key, last;
};

enum Measure { TOKENS, WEIGHTS, EQUALS };

// Integers in the order of the logits; both zeros have the same.
__device__ __forceinline__ u32 key_of(float logit) {
    const u32 bits = __float_as_uint(logit);
    if (bits >> 31) return bits == 0x80000000u ? bits : ~bits;
    return bits | 0x80000000u;
}

__device__ __forceinline__ float logit_of(u32 key) {
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

// Rounded after each of the two operations, whatever the compiler would rather do.
__device__ __forceinline__ u64 weight_of(const Row& row, float logit) {
    const float distance = __fmul_rn(__fsub_rn(row.highest, logit), row.scale);
    if (!(distance < FARTHEST)) return 0;
    const u32 fixed = (u32)distance, fraction = fixed << (32 - POINT);
    u32 sum = 0x0007251bu;
    sum = 0x00538abau - __umulhi(sum, fraction);
    sum = 0x0273c7f8u - __umulhi(sum, fraction);
    sum = 0x0e34a46bu - __umulhi(sum, fraction);
    sum = 0x3d7f581bu - __umulhi(sum, fraction);
    sum = 0xb1721605u - __umulhi(sum, fraction);
    const u64 power = (1ull << 32) - __umulhi(sum, fraction);
    return power << (HIGHEST - 32) >> (fixed >> POINT);
}

// Of a token that stays: one, its weight, or whether it has a certain key.
template <Measure MEASURE>
__device__ __forceinline__ u64 measured(const Row& row, u32 id, u32 equal) {
    const float logit = row.logits[id];
    const u32 key = key_of(logit);
    if (key < row.key || (key == row.key && id > row.last)) return 0;
    if (MEASURE == WEIGHTS) return weight_of(row, logit);
    return MEASURE == TOKENS || key == equal;
}

__device__ __forceinline__ u64 warp_total(u64 value) {
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

// The first id up to which more is measured than `target`; with SHARE, than that part of all, in units of 2⁻⁶⁴. Each warp
// adds up a run of ids, the run that reaches it is shared out again, and so on. `sums`: one for each warp.
template <Measure MEASURE, bool SHARE>
__device__ __forceinline__ u32 locate(const Row& row, u64 target, u32 equal, u64* sums) {
    const u32 warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, warps = blockDim.x / LANES;
    u32 start = 0, end = row.vocabulary;
    while (end - start > 1) {
        const u32 span = (end - start + warps - 1) / warps;
        const u32 from = start + warp * span, to = from + span < end ? from + span : end;
        u64 sum = 0;
        for (u32 id = from + lane; id < to; id += LANES) sum += measured<MEASURE>(row, id, equal);
        sum = warp_total(sum);
        __syncthreads();
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
        if (SHARE && start == 0 && end == row.vocabulary) {
            u64 all = 0;
            for (u32 run = 0; run < warps; ++run) all += sums[run];
            target = __umul64hi(target, all);
        }
        u32 run = 0;
        while (target >= sums[run]) target -= sums[run++];
        start += run * span;
        end = start + span < end ? start + span : end;
    }
    return start;
}

// Lets only the fewest of the highest logits stay, lower ids first among equals, whose measures add up to `needed`; with
// `part`, to that part of all, in units of 2⁻³². Finds the lowest key digit by digit, by the sums of each.
// `shared`: sums of groups of digits, of digits, and of their copies in halves.
template <Measure MEASURE>
__device__ __forceinline__ void keep(Row& row, u64 needed, u32 part, u64* shared) {
    u64 *groups = shared, *sums = groups + GROUPS;
    u32 *low = (u32*)(sums + DIGITS), *high = low + DIGITS * COPIES;
    const u32 together = DIGITS / GROUPS, copy = threadIdx.x % COPIES;
    u32 key = 0;
    u64 equals = 0;
    for (u32 shift = 32; shift > 0;) {
        shift -= 8;
        __syncthreads();
        for (u32 at = threadIdx.x; at < 2 * DIGITS * COPIES; at += blockDim.x) low[at] = 0;
        __syncthreads();
        for (u32 id = threadIdx.x; id < row.vocabulary; id += blockDim.x) {
            const u32 own = key_of(row.logits[id]);
            if ((own ^ key) >> shift >= DIGITS) continue;
            const u64 amount = measured<MEASURE>(row, id, 0);
            if (amount == 0) continue;
            // In halves with a carry: shared memory adds 32 bits by itself, and 64 only in a loop of trials.
            const u32 place = (own >> shift & (DIGITS - 1)) * COPIES + copy, added = (u32)amount;
            const u32 before = atomicAdd(&low[place], added);
            const u32 carried = (u32)(amount >> 32) + (before + added < added ? 1 : 0);
            if (carried) atomicAdd(&high[place], carried);
        }
        __syncthreads();
        for (u32 digit = threadIdx.x; digit < DIGITS; digit += blockDim.x) {
            u64 sum = 0;
            for (u32 at = digit * COPIES; at < (digit + 1) * COPIES; ++at) sum += (u64)high[at] << 32 | low[at];
            sums[digit] = sum;
        }
        __syncthreads();
        if (threadIdx.x < GROUPS) {
            u64 sum = 0;
            for (u32 at = 0; at < together; ++at) sum += sums[threadIdx.x * together + at];
            groups[threadIdx.x] = sum;
        }
        __syncthreads();
        if (part && shift == 24) {
            u64 all = 0;
            for (u32 group = 0; group < GROUPS; ++group) all += groups[group];
            const u64 factor = (u64)part << 32;
            needed = __umul64hi(all, factor) + (all * factor != 0 ? 1 : 0);
        }
        u32 group = GROUPS - 1;
        while (groups[group] < needed) needed -= groups[group--];
        u32 digit = group * together + together - 1;
        while (sums[digit] < needed) needed -= sums[digit--];
        equals = sums[digit];
        key |= digit << shift;
    }
    const u64 each = MEASURE == WEIGHTS ? weight_of(row, logit_of(key)) : 1;
    const u64 count = (needed + each - 1) / each;
    if (count * each < equals) {
        row.last = locate<EQUALS, false>(row, count - 1, key, groups);
    } else if (key != row.key) {
        row.last = row.vocabulary;
    }
    row.key = key;
}

// One block a row: the id that follows, as the row's rule says; NOT_FINITE if a logit is not finite. A rule: the scale of
// differences, how many of the highest may stay, which part of their weight must, and the random number, low half first;
// a scale of 0 asks for the highest logit, the lowest id among equals.
// Shared memory: a float and an integer a thread, of which there are CHOOSERS, or what `keep` needs, which is more.
KERNEL void __launch_bounds__(CHOOSERS, 1)
    choose(const float* logits, const u32* rules, u32* chosen, u32 vocabulary) {
    SHARED_MEMORY(scratch);
    float* highest = scratch;
    u32* ids = (u32*)(scratch + blockDim.x);
    const float* from = logits + (u64)blockIdx.x * vocabulary;
    float best = -INFINITE;
    u32 id = 0;
    for (u32 at = threadIdx.x; at < vocabulary; at += blockDim.x) {
        const float logit = from[at];
        if (!(fabsf(logit) < INFINITE)) {
            id = NOT_FINITE;
            break;
        }
        if (logit > best) {
            best = logit;
            id = at;
        }
    }
    highest[threadIdx.x] = best;
    ids[threadIdx.x] = id;
    for (u32 distance = blockDim.x / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (threadIdx.x < distance) {
            const u32 other = threadIdx.x + distance;
            const bool neither = ids[threadIdx.x] != NOT_FINITE && ids[other] != NOT_FINITE;
            const bool better = highest[other] > highest[threadIdx.x] ||
                                (highest[other] == highest[threadIdx.x] && ids[other] < ids[threadIdx.x]);
            if (!neither) {
                ids[threadIdx.x] = NOT_FINITE;
            } else if (better) {
                highest[threadIdx.x] = highest[other];
                ids[threadIdx.x] = ids[other];
            }
        }
    }
    __syncthreads();
    id = ids[0];
    const u32* rule = rules + (u64)blockIdx.x * RULE;
    if (rule[0] != 0 && id != NOT_FINITE) {
        Row row = {from, vocabulary, highest[0], __uint_as_float(rule[0]), 0, vocabulary};
        const u32 count = rule[1], part = rule[2];
        u64* sums = (u64*)scratch;
        if (count < vocabulary) keep<TOKENS>(row, count, 0, sums);
        if (part) keep<WEIGHTS>(row, 0, part, sums);
        id = locate<WEIGHTS, true>(row, (u64)rule[4] << 32 | rule[3], 0, sums);
    }
    if (threadIdx.x == 0) chosen[blockIdx.x] = id;
}

// Calls a macro with each kernel of all files.
#define ALL_KERNELS(each)                                                                                             \
    each(product) each(embed) each(rms_norm) each(rotate_store) each(attention) each(attention_32) each(attention_64) \
        each(attention_128) each(attention_many_32) each(attention_many_64) each(attention_many_128) each(join_parts) \
            each(gated) each(choose)
