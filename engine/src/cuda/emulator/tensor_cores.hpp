// The instructions of tensor cores and asynchronous copies, on the host: by their definition in the PTX manual, with `show` and
// `own_copies` of the threads. A product
// adds in float32 from the first number to the last; a GPU adds in an order of its own.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

// mma.sync.m16n8k16: rows of `left` and columns of the right matrix have 16 numbers, two in each register.
template <typename Widen>
static void emulated_multiply_add(float (&sums)[4], const uint32_t (&left)[4], uint32_t first, uint32_t second, Widen widen) {
    struct Registers {
        uint32_t left[4], right[2];
    };
    Registers own = {{left[0], left[1], left[2], left[3]}, {first, second}};
    const auto* shown = show(own);
    const uint32_t lane = threadIdx.x % 32;
    // The number at `at` of the registers `low` (numbers 0 to 7) and `high` of four lanes.
    auto number = [&](uint32_t lanes, uint32_t low, uint32_t high, uint32_t at) {
        uint32_t registers[6];
        std::memcpy(registers, &shown[lanes * 4 + at % 8 / 2], sizeof registers);
        return widen((unsigned short)(registers[at < 8 ? low : high] >> at % 2 * 16));
    };
    for (uint32_t place = 0; place < 4; ++place) {
        const uint32_t row = lane / 4, lower = place / 2, column = lane % 4 * 2 + place % 2;
        for (uint32_t at = 0; at < 16; ++at) sums[place] += number(row, lower, lower + 2, at) * number(column, 4, 5, at);
    }
}

// ldmatrix.m8n8.x4, with .trans if TURNED.
template <bool TURNED, typename Element>
static void emulated_load_matrices(uint32_t (&numbers)[4], const Element* row) {
    const auto* shown = show(row);
    const uint32_t low = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
        unsigned short two[2];
        for (uint32_t one = 0; one < 2; ++one) {
            const Element* from;
            std::memcpy(&from, &shown[matrix * 8 + (TURNED ? pair + one : low)], sizeof from);
            if ((uintptr_t)from % 16 != 0) fail("a row of a matrix is not aligned to 16 bytes");
            two[one] = from[TURNED ? low : pair + one];
        }
        numbers[matrix] = two[0] | (uint32_t)two[1] << 16;
    }
}

// cp.async, as late as is allowed: a thread's copies are made when it waits for them.
struct Copies {
    struct Copy {
        void* to;
        const void* from;
    };
    std::deque<std::vector<Copy>> groups;
    std::vector<Copy> open;
};

static Copies& own_copies();

[[maybe_unused]] static void emulated_copy_async(void* to, const void* from, bool present) {
    if ((uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0) fail("a copy of 16 bytes is not aligned to them");
    own_copies().open.push_back({to, present ? from : nullptr});
}

[[maybe_unused]] static void emulated_commit_copies() {
    Copies& copies = own_copies();
    copies.groups.push_back(std::move(copies.open));
    copies.open.clear();
}

template <uint32_t PENDING>
static void emulated_wait_for_copies() {
    auto& groups = own_copies().groups;
    for (; groups.size() > PENDING; groups.pop_front()) {
        for (const auto& copy : groups.front()) {
            if (copy.from) std::memcpy(copy.to, copy.from, 16);
            else std::memset(copy.to, 0, 16);
        }
    }
}
