// The threads of a block on the host: what kernels.cu and sampling.cu are written in.
//
// A block's threads are fibers: each runs until it reaches a barrier or a shuffle, then another one. Shared memory is
// filled with values that are not numbers, so that reading it before it is written shows. With a `schedule`, which is the
// seed, the next thread is drawn at random; without, every other block runs its threads in reverse order. Either way a
// missing barrier shows. One host thread runs blocks at a time.
#pragma once

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

// Puts the registers that a call preserves onto the stack and the stack's end into `*from`, and goes on with the stack `to`,
// which such a call has left or `prepare` has filled. `swapcontext` makes system calls, and `setjmp` takes longer, too.
void switch_stacks(void** from, void* to) asm("lumos_switch_stacks");
#if defined(__x86_64__)
constexpr size_t REGISTERS = 8, RETURN_ADDRESS = 6;
asm(R"(
.text
lumos_switch_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#elif defined(__aarch64__)
constexpr size_t REGISTERS = 20, RETURN_ADDRESS = 1;
asm(R"(
.text
lumos_switch_stacks:
    stp x29, x30, [sp, #-160]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x29, x30, [sp], #160
    ret
)");
#else
#error "fibers are switched on x86-64 and AArch64"
#endif

struct Fiber {
    // Touched as far as it is used only.
    std::unique_ptr<char[]> stack{new char[STACK]};
    // The end of the stack while another one runs.
    void* left = nullptr;
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
// The end of the scheduler's stack while a fiber runs.
static void* scheduler;
static uint32_t running;
// The state of the generator that draws the next thread; 0 for the two fixed orders.
static uint64_t schedule = 0;
// The most additions of a block to one address of shared memory, in all blocks so far.
static uint32_t most_additions = 0;
static std::vector<uint32_t> additions;
static const std::function<void()>* body;

static void switch_to(void** from, void* to, const void* stack, size_t size) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack, size);
    switch_stacks(from, to);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    (void)stack, (void)size;
    switch_stacks(from, to);
#endif
}

static const void* scheduler_stack;
static size_t scheduler_size;

static void to_scheduler() {
    switch_to(&fibers[running].left, scheduler, scheduler_stack, scheduler_size);
}

// Runs a thread of one block after the other.
[[noreturn]] static void run_fiber() {
#if defined(__SANITIZE_ADDRESS__)
    // The first one is started by the scheduler, others may be started by a thread that waits.
    const bool first = scheduler_stack == nullptr;
    __sanitizer_finish_switch_fiber(nullptr, first ? &scheduler_stack : nullptr, first ? &scheduler_size : nullptr);
#endif
    for (;;) {
        (*body)();
        fibers[running].done = true;
        to_scheduler();
    }
}

// Makes the next switch to the fiber of a thread begin `run_fiber`. The stacks end in different sets of the processor's cache.
static void prepare(Fiber& fiber, size_t thread) {
    const auto address = reinterpret_cast<uintptr_t>(fiber.stack.get() + STACK) - thread % 64 * 320;
    void** end = reinterpret_cast<void**>(address & ~uintptr_t{15});
    std::fill_n(end - REGISTERS, REGISTERS, nullptr);
    fiber.left = end - REGISTERS;
    static_cast<void**>(fiber.left)[RETURN_ADDRESS] = reinterpret_cast<void*>(&run_fiber);
}

// Takes one of the threads that can go on.
static void choose_thread() {
    if (schedule != 0) {
        schedule ^= schedule << 13, schedule ^= schedule >> 7, schedule ^= schedule << 17;
        std::swap(ready.front(), ready[schedule % ready.size()]);
    }
    running = ready.front();
    ready.pop_front();
    threadIdx = {running, 0, 0};
}

static void wait_at(Barrier& barrier, uint32_t threads) {
    barrier.waiting.push_back(running);
    if (barrier.waiting.size() == threads) {
        ready.insert(ready.end(), barrier.waiting.begin(), barrier.waiting.end());
        barrier.waiting.clear();
    }
    if (ready.empty()) return to_scheduler();
    Fiber& waiting = fibers[running];
    choose_thread();
    Fiber& next = fibers[running];
    if (&next != &waiting) switch_to(&waiting.left, next.left, next.stack.get(), STACK);
}

static void run_block(uint32_t threads, size_t shared, const std::function<void()>& kernel) {
    body = &kernel;
    if (fibers.size() < threads) {
        fibers = std::vector<Fiber>(threads);
        for (uint32_t thread = 0; thread < threads; ++thread) prepare(fibers[thread], thread);
    }
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
        if (blockIdx.x % 2 == 0) {
            ready.push_back(thread);
        } else {
            ready.push_front(thread);
        }
    }
    uint32_t done = 0;
    while (!ready.empty()) {
        choose_thread();
        switch_to(&scheduler, fibers[running].left, fibers[running].stack.get(), STACK);
        done += fibers[running].done;
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
