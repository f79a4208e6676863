// Runs kernels.cu and sampling.cu on the host, for tests: a process that holds buffers, launches kernels and multiplies as
// cuBLAS would, told what to do on its standard input. Built with an address sanitizer, so that every buffer and every
// block's shared memory is guarded on both sides. New buffers are filled with values that are not numbers. The argument is the
// seed of the order of threads.

#include <map>

#include "threads.hpp"

#if LUMOS_ELEMENT == 2
static inline float widen(unsigned short value) { return half_from_table(value); }
static inline unsigned short narrow(float value) { return float_to_half(value); }
#endif

#include "kernels.cu"
#include "attention.cu"
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
#define LISTED(kernel) {#kernel, binder(kernel)},
    ALL_KERNELS(LISTED)
#undef LISTED
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
    run_grid(gridDim, blockDim.x, shared, kernel);
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

int main(int count, char** arguments) {
    if (count > 1) schedule = std::strtoull(arguments[1], nullptr, 10);
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
            case 6:
                std::fwrite(&most_additions, sizeof most_additions, 1, stdout);
                std::fflush(stdout);
                break;
            default:
                fail("unknown command");
        }
    }
}
