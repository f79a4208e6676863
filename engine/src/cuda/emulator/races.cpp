// Runs the kernels under ThreadSanitizer, one host thread for each thread of a block: finds barriers that are missing within
// a warp or across warps, whatever the order of the threads. Compiled for each LUMOS_ELEMENT. A number as argument leaves out
// that barrier of every thread, to show that it would be found.

#include <array>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

struct Index {
    uint32_t x, y, z;
};
static thread_local Index threadIdx, blockIdx;
static Index blockDim, gridDim;
static std::unique_ptr<std::barrier<>> block_barrier;
static std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
using Shown = std::array<uint64_t, 4>;
static std::vector<Shown> exchanged[2];
static thread_local uint32_t shuffles;
static thread_local int barriers;
static int dropped;
alignas(16) static float shared_memory[1 << 16];

#define LUMOS_EMULATOR
#define __device__ static
#define __forceinline__ inline
#define KERNEL static
#define MEMBER
#define __launch_bounds__(...)
#define SHARED_MEMORY(name) float* name = shared_memory
#define INFINITE INFINITY

static void __syncthreads() {
    if (++barriers == dropped) return;
    block_barrier->arrive_and_wait();
}

[[noreturn]] static void fail(const char* reason) {
    std::fprintf(stderr, "%s\n", reason);
    std::exit(1);
}

template <typename T>
static const Shown* show(const T& value) {
    auto& row = exchanged[shuffles++ % 2];
    std::memcpy(&row[threadIdx.x], &value, sizeof(T));
    warp_barriers[threadIdx.x / 32]->arrive_and_wait();
    return &row[threadIdx.x / 32 * 32];
}

template <typename T>
static T __shfl_xor_sync(uint32_t, T value, uint32_t distance) {
    std::memcpy(&value, &show(value)[threadIdx.x % 32 ^ distance], sizeof(T));
    return value;
}

#include "intrinsics.hpp"
#include "tensor_cores.hpp"

static thread_local Copies copies;
static Copies& own_copies() { return copies; }

static uint32_t atomicAdd(uint32_t* address, uint32_t added) {
    return __atomic_fetch_add(address, added, __ATOMIC_RELAXED);
}

#if LUMOS_ELEMENT == 2
static inline float widen(unsigned short value) { return half_from_table(value); }
static inline unsigned short narrow(float value) { return float_to_half(value); }
#endif
#include "kernels.cu"
#include "attention.cu"
#include "sampling.cu"

static void launch(uint32_t grid_x, uint32_t grid_y, uint32_t threads, const std::function<void()>& kernel) {
    blockDim = {threads, 1, 1};
    gridDim = {grid_x, grid_y, 1};
    for (uint32_t y = 0; y < grid_y; ++y) {
        for (uint32_t x = 0; x < grid_x; ++x) {
            block_barrier = std::make_unique<std::barrier<>>(threads);
            warp_barriers.clear();
            for (uint32_t warp = 0; warp < threads / 32; ++warp) {
                warp_barriers.push_back(std::make_unique<std::barrier<>>(32));
            }
            for (auto& row : exchanged) row.assign(threads, Shown{});
            std::memset(shared_memory, 0xff, sizeof shared_memory);
            std::vector<std::thread> running;
            for (uint32_t thread = 0; thread < threads; ++thread) {
                running.emplace_back([=, &kernel] {
                    threadIdx = {thread, 0, 0};
                    blockIdx = {x, y, 0};
                    shuffles = 0;
                    kernel();
                });
            }
            for (auto& thread : running) thread.join();
        }
    }
}

static std::mt19937 generator(1);

static std::vector<float> random_values(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (auto& value : values) value = normal(generator);
    return values;
}

static std::vector<Element> random_elements(size_t count) {
    std::vector<Element> elements;
    for (float value : random_values(count)) elements.push_back(narrow(value));
    return elements;
}

// A chunk of a prompt at the end of a context of `length` positions.
template <typename Kernel>
static void run_attention(Kernel kernel, u32 head_size, u32 length, u32 window, bool in_parts, u32 rows = 9, u32 together = 8) {
    const u32 query_heads = 4, key_heads = 2, page_size = 4, places = (length + 8) / page_size * page_size;
    const u32 parts = in_parts ? (length + PART - 1) / PART : 1;
    auto queries = random_values(rows * (query_heads + 2 * key_heads) * head_size);
    auto keys = random_elements(places * key_heads * head_size), values = random_elements(places * key_heads * head_size);
    std::vector<Element> output(rows * query_heads * head_size);
    std::vector<float> partial(rows * query_heads * parts * (head_size + 2));
    std::vector<u32> pages, tasks, positions;
    for (u32 page = 0; page * page_size < length; ++page) pages.push_back(places / page_size - 1 - page);
    for (u32 row = 0; row < rows; ++row) positions.push_back(length - rows + row);
    for (u32 first = 0; first < rows; first += together) {
        tasks.insert(tasks.end(), {first, std::min(together, rows - first), length - rows + first, 0});
    }
    launch(tasks.size() / 4, key_heads * parts, 128, [&] {
        kernel(queries.data(), tasks.data(), pages.data(), keys.data(), values.data(), output.data(),
               in_parts ? partial.data() : nullptr, parts, query_heads, key_heads, head_size, page_size, window, 0.2f);
    });
    if (!in_parts) return;
    launch(rows, query_heads, head_size, [&] {
        join_parts(partial.data(), positions.data(), output.data(), parts, query_heads, head_size, window);
    });
}

int main(int count, char** arguments) {
    if (count > 1) dropped = std::atoi(arguments[1]);
    run_attention(attention, 20, 70, 16, false);
    run_attention(attention_64, 64, 70, 0, false);
    run_attention(attention_32, 32, 160, 0, true);
    run_attention(attention_many_64, 64, 150, 0, false, 35, 32);
    {
        auto hidden = random_values(3 * 300), update = random_values(3 * 300), weight = random_values(300);
        std::vector<Element> output(900);
        launch(3, 1, 256, [&] {
            rms_norm(nullptr, hidden.data(), update.data(), weight.data(), output.data(), 300, 1e-5f);
        });
    }
    {
        auto weights = random_elements(40 * 132), input = random_elements(11 * 132);
        std::vector<float> output(11 * 40);
        launch(2, 2, 128, [&] { product(weights.data(), input.data(), output.data(), 40, 132, 11); });
    }
    {
        const u32 vocabulary = 1500, rows = 4;
        auto logits = random_values(vocabulary * rows);
        for (u32 at = 0; at < vocabulary; at += 3) logits[at] = std::round(logits[at]);
        const u32 scale = 0x4c000000u;
        std::vector<u32> rules = {0, 0, 0, 0, 0, scale, 40, 0, 1234567, 89, scale, 0xffffffffu, 0xe6666666u, 77, 0x80000000u,
                                  scale, 300, 0xe6666666u, 5, 0xf0000000u};
        std::vector<u32> chosen(rows);
        launch(rows, 1, 128, [&] { choose(logits.data(), rules.data(), chosen.data(), vocabulary); });
    }
    std::puts("done");
}
