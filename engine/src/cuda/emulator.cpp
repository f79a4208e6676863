// Runs kernels.cu and sampling.cu on the host, for tests: a process that holds buffers, launches kernels and multiplies as cuBLAS would,
// told what to do on its standard input. Built with an address sanitizer, so that every buffer and every block's shared
// memory is guarded on both sides.
//
// A block's threads are fibers: each runs until it reaches a barrier or a shuffle, then the next one. New buffers and
// shared memory are filled with what is no number, so that nothing is read before it was written. Every other block runs
// its threads the other way round, so that a barrier that is missing shows.

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
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
static std::vector<uint64_t> exchanged[2];
static std::vector<unsigned char> shared_bytes;
static Context scheduler;
static uint32_t running;
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

static void run_block(uint32_t threads, size_t shared, const std::function<void()>& kernel) {
    body = &kernel;
    if (fibers.size() < threads) fibers = std::vector<Fiber>(threads);
    warp_barriers.assign((threads + WARP - 1) / WARP, {});
    block_barrier.waiting.clear();
    for (auto& row : exchanged) row.assign(threads, ~uint64_t{0});
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
        running = ready.front();
        ready.pop_front();
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

template <typename T>
static T __shfl_xor_sync(uint32_t lanes, T value, uint32_t distance) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    if (lanes != 0xffffffffu || blockDim.x % WARP != 0) fail("shuffles need whole warps");
    const uint32_t thread = running;
    auto& row = exchanged[fibers[thread].shuffles++ % 2];
    std::memcpy(&row[thread], &value, sizeof(T));
    wait_at(warp_barriers[thread / WARP], WARP);
    std::memcpy(&value, &row[thread ^ distance], sizeof(T));
    return value;
}

// ---- What the kernels are written in ----

#define LUMOS_EMULATOR
#define __device__ static
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(threads)
#define SHARED_MEMORY(name) float* name = reinterpret_cast<float*>(shared_bytes.data())
#define INFINITE INFINITY

static float __uint_as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

[[maybe_unused]] static uint32_t __float_as_uint(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

// Each rounded by itself, which a compiler might not do with `a * b - c`.
static float __fmul_rn(float one, float other) { return one * other; }
static float __fsub_rn(float one, float other) { return one - other; }

static uint32_t __umulhi(uint32_t one, uint32_t other) { return (uint64_t)one * other >> 32; }
static uint64_t __umul64hi(uint64_t one, uint64_t other) { return (unsigned __int128)one * other >> 64; }

// Nothing comes in between: one thread runs at a time.
static uint32_t atomicAdd(uint32_t* address, uint32_t added) {
    const uint32_t before = *address;
    *address += added;
    return before;
}

// Half precision by its definition (IEEE 754 binary16), to the nearest with ties to even.
[[maybe_unused]] static float half_to_float(unsigned short half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const float sign = half >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp((float)fraction, -24));
}

[[maybe_unused]] static unsigned short float_to_half(float value) {
    const unsigned short sign = std::signbit(value) ? 0x8000 : 0;
    const float size = std::fabs(value);
    if (std::isnan(value)) return sign | 0x7e00;
    if (size >= 65520.0f) return sign | 0x7c00;
    int exponent = 0;
    std::frexp(size, &exponent);
    const int step = exponent < -13 ? -24 : exponent - 11;
    // Adding the exponent to a fraction that was rounded up to the next power carries into it, as it should.
    const int fraction = (int)std::nearbyint(std::ldexp(size, -step));
    return sign | (unsigned short)(size == 0 ? 0 : fraction + (step + 24) * 1024);
}

#if LUMOS_ELEMENT == 2
static inline float widen(unsigned short value) { return half_to_float(value); }
static inline unsigned short narrow(float value) { return float_to_half(value); }
#endif

#include "kernels.cu"
#include "sampling.cu"

// ---- The device ----

struct Value {
    enum Kind : uint32_t { BUFFER, INTEGER, NUMBER, NOTHING } kind;
    unsigned char* address;
    uint32_t bits;
};

template <typename T>
struct Taken;
template <typename T>
struct Taken<T*> {
    static T* from(const Value& value) {
        if (value.kind != Value::BUFFER && value.kind != Value::NOTHING) fail("an argument is no buffer");
        return value.kind == Value::BUFFER ? (T*)value.address : nullptr;
    }
};
template <>
struct Taken<u32> {
    static u32 from(const Value& value) {
        if (value.kind != Value::INTEGER) fail("an argument is no integer");
        return value.bits;
    }
};
template <>
struct Taken<float> {
    static float from(const Value& value) {
        if (value.kind != Value::NUMBER) fail("an argument is no number");
        return __uint_as_float(value.bits);
    }
};

using Arguments = std::vector<Value>;

template <typename... T, size_t... I>
static std::function<void()> bound(void (*kernel)(T...), const Arguments& given, std::index_sequence<I...>) {
    if (given.size() != sizeof...(T)) fail("a kernel has another number of arguments");
    return [kernel, ... values = Taken<T>::from(given[I])] { kernel(values...); };
}

template <typename... T>
static std::function<std::function<void()>(const Arguments&)> binder(void (*kernel)(T...)) {
    return [kernel](const Arguments& given) { return bound(kernel, given, std::index_sequence_for<T...>{}); };
}

static const std::map<std::string, std::function<std::function<void()>(const Arguments&)>> KERNELS = {
    {"embed", binder(embed)},         {"rms_norm", binder(rms_norm)}, {"rotate_store", binder(rotate_store)},
    {"attention", binder(attention)}, {"gated", binder(gated)},       {"choose", binder(choose)},
};

static std::map<uint32_t, std::vector<unsigned char>> buffers;

template <typename T>
static T take() {
    T value;
    if (std::fread(&value, sizeof(T), 1, stdin) != 1) fail("the input ends early");
    return value;
}

// A part of a buffer, checked.
static unsigned char* part(uint32_t id, uint64_t offset, uint64_t bytes) {
    auto found = buffers.find(id);
    if (found == buffers.end()) fail("there is no such buffer");
    if (offset + bytes > found->second.size()) fail("a part lies beyond its buffer");
    return found->second.data() + offset;
}

static void launch() {
    std::string name(take<uint32_t>(), ' ');
    if (std::fread(name.data(), 1, name.size(), stdin) != name.size()) fail("the input ends early");
    gridDim = {take<uint32_t>(), take<uint32_t>(), 1};
    blockDim = {take<uint32_t>(), 1, 1};
    const uint32_t shared = take<uint32_t>();
    Arguments arguments(take<uint32_t>());
    for (Value& value : arguments) {
        value.kind = (Value::Kind)take<uint32_t>();
        if (value.kind == Value::BUFFER) {
            const auto id = take<uint32_t>();
            const auto offset = take<uint64_t>();
            value.address = part(id, offset, 0);
        } else if (value.kind != Value::NOTHING) {
            value.bits = take<uint32_t>();
        }
    }
    auto found = KERNELS.find(name);
    if (found == KERNELS.end()) fail("there is no kernel " + name);
    const auto kernel = found->second(arguments);
    if (gridDim.x == 0 || gridDim.y == 0 || blockDim.x == 0 || blockDim.x > 1024 || gridDim.y > 65535 || shared > 227u << 10) {
        fail("the card would not launch " + name);
    }
    for (uint32_t y = 0; y < gridDim.y; ++y) {
        for (uint32_t x = 0; x < gridDim.x; ++x) {
            blockIdx = {x, y, 0};
            run_block(blockDim.x, shared, kernel);
        }
    }
}

// C = op(A) · op(B) as cublasGemmEx has it: column by column, A transposed, B not; Elements in, float32 out.
static void multiply() {
    uint32_t ids[3];
    uint64_t offsets[3];
    for (int index = 0; index < 3; ++index) {
        ids[index] = take<uint32_t>();
        offsets[index] = take<uint64_t>();
    }
    uint64_t sizes[6];
    for (auto& size : sizes) size = take<uint32_t>();
    const auto [m, n, k, lda, ldb, ldc] = sizes;
    if (lda < k || ldb < k || ldc < m) fail("cuBLAS would not take these sizes");
    const auto* a = (const Element*)part(ids[0], offsets[0], ((m - 1) * lda + k) * sizeof(Element));
    const auto* b = (const Element*)part(ids[1], offsets[1], ((n - 1) * ldb + k) * sizeof(Element));
    auto* c = (float*)part(ids[2], offsets[2], ((n - 1) * ldc + m) * sizeof(float));
    for (uint64_t column = 0; column < n; ++column) {
        for (uint64_t row = 0; row < m; ++row) {
            float sum = 0;
            for (uint64_t at = 0; at < k; ++at) sum += widen(a[row * lda + at]) * widen(b[column * ldb + at]);
            c[column * ldc + row] = sum;
        }
    }
}

int main() {
    uint32_t command;
    while (std::fread(&command, sizeof(command), 1, stdin) == 1) {
        const bool named = command <= 3;
        const uint32_t id = named ? take<uint32_t>() : 0;
        switch (command) {
            case 0:
                buffers[id] = std::vector<unsigned char>(take<uint64_t>(), 0xff);
                break;
            case 1: {
                const auto offset = take<uint64_t>(), bytes = take<uint64_t>();
                if (std::fread(part(id, offset, bytes), 1, bytes, stdin) != bytes) fail("the input ends early");
                break;
            }
            case 2: {
                const auto offset = take<uint64_t>(), bytes = take<uint64_t>();
                std::fwrite(part(id, offset, bytes), 1, bytes, stdout);
                std::fflush(stdout);
                break;
            }
            case 3:
                buffers.erase(id);
                break;
            case 4:
                launch();
                break;
            case 5:
                multiply();
                break;
            default:
                fail("unknown command");
        }
    }
}
