// The threads of a block on the host: what kernels.cu and sampling.cu are written in.
//
// A block's threads are fibers: each runs until it reaches a barrier or a shuffle, then another one. Shared memory is
// filled with values that are not numbers, so that reading it before it is written shows. With a `schedule`, which is the
// seed, the next thread is drawn at random; without, every other block runs its threads in reverse order. Either way a
// missing barrier shows. One host thread runs blocks at a time.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

[[noreturn]] static void fail(const std::string& reason) {
    std::fprintf(stderr, "emulator: %s\n", reason.c_str());
    std::exit(1);
}

// ---- Threads of a block ----

struct Index {
    uint32_t x, y, z;
};
static Index threadIdx, blockIdx, blockDim, gridDim;

constexpr size_t STACK = 256 << 10;
constexpr uint32_t WARP = 32;

struct Context {
    ucontext_t start;
    // Where it was left, once it has run.
    jmp_buf left;
    bool started = false;
};

struct Fiber {
    Fiber() { getcontext(&context.start); }

    Context context;
    // Touched as far as it is used only.
    std::unique_ptr<char[]> stack{new char[STACK]};
    bool done = false;
    // Shuffles alternate between two rows of values, so that one barrier each is enough.
    uint32_t shuffles = 0;
};

struct Barrier {
    std::vector<uint32_t> waiting;
};

static std::vector<Fiber> fibers;
static std::deque<uint32_t> ready;
static std::vector<Barrier> warp_barriers;
static Barrier block_barrier;
// What each thread shows to the others of its warp.
using Shown = std::array<uint64_t, 4>;
static std::vector<Shown> exchanged[2];
static std::vector<unsigned char> shared_bytes;
static Context scheduler;
static uint32_t running;
// The state of the generator that draws the next thread; 0 for the two fixed orders.
static uint64_t schedule = 0;
// The most additions of a block to one address of shared memory, in all blocks so far.
static uint32_t most_additions = 0;
static std::vector<uint32_t> additions;
static const std::function<void()>* body;

static void switch_to(Context* from, Context* to, const void* stack, size_t size, bool last) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(last ? nullptr : &fake, stack, size);
    swapcontext(&from->start, &to->start);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    (void)stack, (void)size, (void)last;
    // `swapcontext` makes two system calls, for the mask of signals.
    if (_setjmp(from->left)) return;
    from->started = true;
    if (to->started) _longjmp(to->left, 1);
    setcontext(&to->start);
#endif
}

static const void* scheduler_stack;
static size_t scheduler_size;

static void to_scheduler(bool last) {
    switch_to(&fibers[running].context, &scheduler, scheduler_stack, scheduler_size, last);
}

static void start_fiber() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
    (*body)();
    fibers[running].done = true;
    to_scheduler(true);
}

static void wait_at(Barrier& barrier, uint32_t threads) {
    barrier.waiting.push_back(running);
    if (barrier.waiting.size() == threads) {
        ready.insert(ready.end(), barrier.waiting.begin(), barrier.waiting.end());
        barrier.waiting.clear();
    }
    to_scheduler(false);
}

// Takes one of the threads that can go on.
static uint32_t next_thread() {
    if (schedule != 0) {
        schedule ^= schedule << 13, schedule ^= schedule >> 7, schedule ^= schedule << 17;
        std::swap(ready.front(), ready[schedule % ready.size()]);
    }
    const uint32_t thread = ready.front();
    ready.pop_front();
    return thread;
}

static void run_block(uint32_t threads, size_t shared, const std::function<void()>& kernel) {
    body = &kernel;
    if (fibers.size() < threads) fibers = std::vector<Fiber>(threads);
    warp_barriers.assign((threads + WARP - 1) / WARP, {});
    block_barrier.waiting.clear();
    for (auto& row : exchanged) row.assign(threads, Shown{~uint64_t{0}});
    additions.assign(shared / sizeof(uint32_t) + 1, 0);
    shared_bytes = std::vector<unsigned char>();
    shared_bytes.assign(shared, 0xff);
    ready.clear();
    for (uint32_t thread = 0; thread < threads; ++thread) {
        Fiber& fiber = fibers[thread];
        fiber.done = false;
        fiber.shuffles = 0;
        ucontext_t& start = fiber.context.start;
        start.uc_stack.ss_sp = fiber.stack.get();
        start.uc_stack.ss_size = STACK;
        start.uc_link = nullptr;
        makecontext(&start, start_fiber, 0);
        fiber.context.started = false;
        if (blockIdx.x % 2 == 0) {
            ready.push_back(thread);
        } else {
            ready.push_front(thread);
        }
    }
    uint32_t done = 0;
    while (!ready.empty()) {
        running = next_thread();
        threadIdx = {running, 0, 0};
        Fiber& fiber = fibers[running];
        switch_to(&scheduler, &fiber.context, fiber.stack.get(), STACK, false);
        // `swapcontext` clears the sanitizer's data about a stack of this size, which is needed only at the start.
        fiber.context.start.uc_stack.ss_size = 0;
        done += fiber.done;
    }
    if (done != threads) fail("threads wait at a barrier that the others never reach");
}

static void __syncthreads() { wait_at(block_barrier, blockDim.x); }

// Shows a value to the other threads of the warp. Returns those of all of them, by lane.
template <typename T>
static const Shown* show(const T& value) {
    static_assert(sizeof(T) <= sizeof(Shown));
    if (blockDim.x % WARP != 0) fail("shuffles need whole warps");
    const uint32_t thread = running;
    auto& row = exchanged[fibers[thread].shuffles++ % 2];
    std::memcpy(&row[thread], &value, sizeof(T));
    wait_at(warp_barriers[thread / WARP], WARP);
    return &row[thread / WARP * WARP];
}

template <typename T>
static T __shfl_xor_sync(uint32_t lanes, T value, uint32_t distance) {
    if (lanes != 0xffffffffu) fail("shuffles need whole warps");
    const uint32_t lane = running % WARP;
    std::memcpy(&value, &show(value)[lane ^ distance], sizeof(T));
    return value;
}

// ---- What the kernels are written in ----

#define LUMOS_EMULATOR
#define __device__ static
#define __forceinline__ inline
#define KERNEL static
#define MEMBER
#define __launch_bounds__(...)
#define SHARED_MEMORY(name) float* name = reinterpret_cast<float*>(shared_bytes.data())
#define INFINITE INFINITY

// Nothing comes in between: one thread runs at a time.
static uint32_t atomicAdd(uint32_t* address, uint32_t added) {
    most_additions = std::max(most_additions, ++additions[((unsigned char*)address - shared_bytes.data()) / sizeof *address]);
    const uint32_t before = *address;
    *address += added;
    return before;
}

#include "intrinsics.hpp"
#include "tensor_cores.hpp"

static std::vector<Copies> copies;
static Copies& own_copies() { return copies[running]; }

// Of every block of a grid, one after the other.
static void run_grid(Index grid, uint32_t threads, size_t shared, const std::function<void()>& kernel) {
    gridDim = grid;
    blockDim = {threads, 1, 1};
    for (uint32_t y = 0; y < grid.y; ++y) {
        for (uint32_t x = 0; x < grid.x; ++x) {
            blockIdx = {x, y, 0};
            copies.assign(threads, {});
            run_block(threads, shared, kernel);
        }
    }
}
