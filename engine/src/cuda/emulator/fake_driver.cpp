// A CUDA driver, cuBLAS and NVRTC without a GPU, for tests: one shared library that runs the kernels on the host
// (threads.hpp). Under the names libcuda.so, libcublas.so and libnvrtc.so in a folder of LD_LIBRARY_PATH it takes the place
// of all three, so that tests run the whole program.
//
// It is strict where NVIDIA's documentation leaves room:
// - A stream's operations run when somebody waits for it, the latest time that is allowed.
// - An asynchronous copy from memory that is not page-locked reads it after the call has returned, when the caller may
//   have changed it: the device gets values that are not numbers, unless the caller waits for the stream at once.
// - Freed memory counts as taken until the stream is synchronized.
// - The context must be current on the calling thread, pointers must lie in live allocations of its device.
// - cuBLAS adds in another order if a product has few columns, unless the caller took its workspace away.
// - While a stream is captured, it only takes launches and products, and products only if the caller has set the
//   workspace. Their pointers must lie in live allocations whenever the graph is launched. No thread may synchronize
//   its context, which cublasDestroy also does.
// Matrix products and copies within the device that are too large for the host (the measurement of peak rates) are
// skipped; their outputs are not numbers. Such products of memory that nobody has written are counted.
//
// Environment variables: LUMOS_FAKE_GPUS (number of GPUs, 1), LUMOS_FAKE_BYTES (memory of each, 80 GB),
// LUMOS_FAKE_CAPABILITY (compute capability, 9.0), LUMOS_FAKE_DRIVER and LUMOS_FAKE_LIBRARIES (CUDA versions of the driver
// and of the other two, 13.0), LUMOS_FAKE_FAIL (operation from which on every call fails), LUMOS_FAKE_HANG (operation that
// never ends), LUMOS_FAKE_GRAPHS (0: streams cannot be captured), LUMOS_FAKE_LOG (file that gets a line of counts when the process ends).

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "threads.hpp"

// Kernels for each type of elements.
namespace float32 {
#define LUMOS_ELEMENT 0
#include "kernels.cu"
#include "attention.cu"
#include "sampling.cu"
#undef LUMOS_ELEMENT
}  // namespace float32
namespace bfloat16 {
#define LUMOS_ELEMENT 1
#include "kernels.cu"
#include "attention.cu"
#include "sampling.cu"
#undef LUMOS_ELEMENT
}  // namespace bfloat16
namespace half {
static inline float widen(unsigned short value) { return half_from_table(value); }
static inline unsigned short narrow(float value) { return float_to_half(value); }
#define LUMOS_ELEMENT 2
#include "kernels.cu"
#include "attention.cu"
#include "sampling.cu"
#undef LUMOS_ELEMENT
}  // namespace half

enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

static uint64_t setting(const char* name, uint64_t value) {
    const char* text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 10) : value;
}

// A version such as 12.4 as `major * unit + minor * (unit / 100)`.
static int version(const char* name, const char* value, int unit) {
    const char* text = std::getenv(name);
    int major = 0, minor = 0;
    std::sscanf(text && *text ? text : value, "%d.%d", &major, &minor);
    return major * unit + minor * (unit / 100);
}

// The most shared memory of a block, by CUDA's table of compute capabilities.
static int most_shared() {
    const int capability = version("LUMOS_FAKE_CAPABILITY", "9.0", 1000);
    const int major = capability / 1000, minor = capability % 1000 / 10;
    if (major < 7) return 48 << 10;
    if (major == 7) return (minor == 5 ? 64 : 96) << 10;
    if (major == 8) return (minor == 0 || minor == 7 ? 163 : 99) << 10;
    return (major == 12 ? 99 : 227) << 10;
}

// A program that breaks a rule gets the driver's error; this says which rule.
static Result broken(const char* rule, Result result) {
    std::fprintf(stderr, "fake driver: %s\n", rule);
    return result;
}

// ---- State ----

struct Allocation {
    size_t bytes, mapped;
    int device;
    bool is_host;
};

struct Stream;

struct Device {
    int ordinal = 0;
    // Bytes of live allocations, and of those that were freed since the last synchronization.
    uint64_t used = 0, pending = 0;
    int retained = 0;
    bool has_libraries = false;
};

struct Stream {
    Device* device;
    std::deque<std::function<void()>> operations;
    uint64_t enqueued = 0, executed = 0;
    bool hangs = false;
    // The graph that gets the operations.
    struct Graph* captured = nullptr;
};

// Captured operations, and what their pointers refer to.
struct Graph {
    std::vector<std::function<void()>> operations;
    std::vector<uint64_t> addresses;
    bool is_valid = true;
};

struct Event {
    Device* device;
    Stream* stream = nullptr;
    uint64_t at = 0;
};

using Kernel = std::function<std::function<void()>(void**)>;

struct Module {
    int element;
    Device* device;
};

struct Function {
    Kernel kernel;
    std::string name;
    Device* device;
    int most_shared = 48 << 10;
};

struct Blas {
    Device* device;
    Stream* stream = nullptr;
    bool has_set_workspace = false;
    size_t workspace_bytes = 32 << 20;
};

struct Program {
    std::string architecture, code, ptx, log;
};

constexpr uint64_t CONTEXT_BYTES = 450ull << 20, HANDLE_BYTES = 32ull << 20, LIBRARY_BYTES = 200ull << 20;
// The largest copy within a device and the most multiplications of a product that are carried out.
constexpr uint64_t LARGEST_COPY = 64ull << 20, LARGEST_PRODUCT = 1ull << 33;

static std::recursive_mutex lock;
static bool initialized = false;
static Device devices[16];
static std::map<uint64_t, Allocation> allocations;
static std::vector<Stream*> streams;
static thread_local Device* current = nullptr;
static Result sticky = SUCCESS;
static uint64_t operations = 0, launches = 0, products = 0, poisoned = 0, unwritten = 0, graphs = 0, peak = 0;
// The copy of this thread whose source may change as soon as the program goes on.
static thread_local std::shared_ptr<bool> unguarded;

struct Report {
    ~Report() {
        const char* path = std::getenv("LUMOS_FAKE_LOG");
        if (!path || !operations) return;
        if (FILE* file = std::fopen(path, "a")) {
            std::fprintf(file, "launches=%llu products=%llu poisoned=%llu unwritten=%llu graphs=%llu peak=%llu\n",
                         (unsigned long long)launches, (unsigned long long)products, (unsigned long long)poisoned,
                         (unsigned long long)unwritten, (unsigned long long)graphs, (unsigned long long)peak);
            std::fclose(file);
        }
    }
};
static Report report;

static uint64_t total_bytes() { return setting("LUMOS_FAKE_BYTES", 80'000'000'000ull); }
static int device_count() { return (int)std::min<uint64_t>(setting("LUMOS_FAKE_GPUS", 1), 16); }

static bool take(Device& device, uint64_t bytes) {
    if (device.used + device.pending + bytes > total_bytes()) return false;
    device.used += bytes;
    peak = std::max(peak, device.used + device.pending);
    return true;
}

// The allocation that holds `bytes` bytes at an address.
static const Allocation* find(uint64_t address, uint64_t bytes) {
    auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) return nullptr;
    auto& [start, allocation] = *std::prev(after);
    return address + bytes <= start + allocation.bytes ? &allocation : nullptr;
}

static bool on_device(uint64_t address, uint64_t bytes, const Device* device) {
    const Allocation* found = find(address, bytes);
    return found && !found->is_host && found->device == device->ordinal;
}

static void* map(size_t bytes, size_t* mapped) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), rounded = (bytes + page - 1) / page * page;
    *mapped = rounded + page;
    void* memory = mmap(nullptr, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    mprotect((char*)memory + rounded, page, PROT_NONE);
    return memory;
}

static void synchronize(Stream& stream, uint64_t until) {
    while (stream.executed < until && !stream.operations.empty()) {
        auto operation = std::move(stream.operations.front());
        stream.operations.pop_front();
        ++stream.executed;
        operation();
    }
}

// What every call begins with: the error of an earlier operation, and the end of what the last copy may rely on.
static Result enter(bool waits = false) {
    if (unguarded && !waits) *unguarded = true;
    unguarded.reset();
    if (!initialized) return NOT_INITIALIZED;
    return sticky;
}

static Result enter_context(bool waits = false) {
    const Result result = enter(waits);
    if (result != SUCCESS) return result;
    return current ? SUCCESS : broken("no context is current on this thread", INVALID_CONTEXT);
}

static Result enter_stream(Stream* stream, bool waits = false, bool may_capture = false) {
    const Result result = enter_context(waits);
    if (result != SUCCESS) return result;
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) return INVALID_HANDLE;
    if (stream->captured && !may_capture) {
        stream->captured->is_valid = false;
        return broken("a call that a stream cannot capture", CAPTURE_UNSUPPORTED);
    }
    return stream->device == current ? SUCCESS : broken("the stream belongs to another context", INVALID_CONTEXT);
}

// Counts an operation of the device, which may be the one that fails or hangs.
static Result enqueue(Stream* stream, std::function<void()> operation, bool counts) {
    if (stream->captured) {
        stream->captured->operations.push_back(std::move(operation));
        return SUCCESS;
    }
    if (counts) {
        ++operations;
        if (operations == setting("LUMOS_FAKE_HANG", 0)) stream->hangs = true;
        const bool fails = operations == setting("LUMOS_FAKE_FAIL", 0);
        if (fails) operation = [] { sticky = ILLEGAL_ADDRESS; };
    }
    stream->operations.push_back([operation = std::move(operation)] {
        if (sticky == SUCCESS) operation();
    });
    ++stream->enqueued;
    return SUCCESS;
}

// Waits for a stream like the driver: for ever, if an operation never ends.
static Result wait_for(Stream& stream, uint64_t until, std::unique_lock<std::recursive_mutex>& held) {
    while (stream.hangs) {
        held.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        held.lock();
    }
    synchronize(stream, until);
    return sticky;
}

#define EXPORT extern "C" __attribute__((visibility("default")))
#define LOCK std::unique_lock<std::recursive_mutex> held(lock)
#define CHECK(entered)                                     \
    if (const Result result = (entered); result != SUCCESS) return result

// ---- The driver ----

EXPORT int cuInit(unsigned) {
    LOCK;
    for (int ordinal = 0; ordinal < 16; ++ordinal) devices[ordinal].ordinal = ordinal;
    initialized = true;
    return device_count() == 0 ? 100 : SUCCESS;
}

EXPORT int cuDriverGetVersion(int* found) {
    *found = version("LUMOS_FAKE_DRIVER", "13.0", 1000);
    return SUCCESS;
}

EXPORT int cuGetErrorName(int error, const char** name) {
    static const std::map<int, const char*> NAMES = {
        {1, "CUDA_ERROR_INVALID_VALUE"},      {2, "CUDA_ERROR_OUT_OF_MEMORY"},   {3, "CUDA_ERROR_NOT_INITIALIZED"},
        {101, "CUDA_ERROR_INVALID_DEVICE"},   {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {400, "CUDA_ERROR_INVALID_HANDLE"}, {600, "CUDA_ERROR_NOT_READY"},
        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    };
    auto found = NAMES.find(error);
    *name = found == NAMES.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
    return SUCCESS;
}

EXPORT int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }

EXPORT int cuDeviceGetCount(int* count) {
    LOCK;
    CHECK(enter());
    *count = device_count();
    return SUCCESS;
}

EXPORT int cuDeviceGet(int* device, int ordinal) {
    LOCK;
    CHECK(enter());
    if (ordinal < 0 || ordinal >= device_count()) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

EXPORT int cuDeviceGetName(char* name, int bytes, int device) {
    std::snprintf(name, (size_t)bytes, "Fake GPU %d", device);
    return SUCCESS;
}

EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int) {
    *bytes = total_bytes();
    return SUCCESS;
}

EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
    const int capability = version("LUMOS_FAKE_CAPABILITY", "9.0", 1000);
    switch (attribute) {
        case 75: *value = capability / 1000; break;
        case 76: *value = capability % 1000 / 10; break;
        case 97: *value = most_shared(); break;
        case 115: *value = 1; break;
        default: return broken("unknown attribute of a device", INVALID_VALUE);
    }
    return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRetain(Device** context, int device) {
    LOCK;
    CHECK(enter());
    Device& retained = devices[device];
    if (retained.retained++ == 0 && !take(retained, CONTEXT_BYTES)) return OUT_OF_MEMORY;
    *context = &retained;
    return SUCCESS;
}

// cuBLAS keeps the context, so that its memory stays taken.
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    LOCK;
    CHECK(enter());
    if (--devices[device].retained == 0) {
        devices[device].used -= CONTEXT_BYTES;
    }
    return SUCCESS;
}

EXPORT int cuCtxGetCurrent(Device** context) {
    *context = current;
    return SUCCESS;
}

EXPORT int cuCtxSetCurrent(Device* context) {
    current = context;
    return SUCCESS;
}

// Returns an error and invalidates the captures if streams of the device are being captured.
static Result check_uncaptured(const Device* device) {
    Result result = SUCCESS;
    for (Stream* stream : streams) {
        if (stream->device != device || !stream->captured) continue;
        stream->captured->is_valid = false;
        result = broken("the context of a captured stream is synchronized", CAPTURE_UNSUPPORTED);
    }
    return result;
}

static void synchronize_device(Device* device, std::unique_lock<std::recursive_mutex>& held) {
    for (Stream* stream : std::vector<Stream*>(streams)) {
        if (stream->device == device) wait_for(*stream, ~0ull, held);
    }
    device->pending = 0;
}

EXPORT int cuCtxSynchronize() {
    LOCK;
    CHECK(enter_context(true));
    CHECK(check_uncaptured(current));
    synchronize_device(current, held);
    return sticky;
}

EXPORT int cuStreamCreate(Stream** stream, unsigned) {
    LOCK;
    CHECK(enter_context());
    *stream = streams.emplace_back(new Stream{current, {}, 0, 0, false, nullptr});
    return SUCCESS;
}

EXPORT int cuStreamSynchronize(Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream, true));
    const Result result = wait_for(*stream, ~0ull, held);
    stream->device->pending = 0;
    return result;
}

EXPORT int cuStreamQuery(Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream, true));
    if (stream->hangs) return NOT_READY;
    synchronize(*stream, ~0ull);
    return sticky;
}

EXPORT int cuStreamDestroy_v2(Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream));
    synchronize(*stream, ~0ull);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return SUCCESS;
}

EXPORT int cuEventCreate(Event** event, unsigned) {
    LOCK;
    CHECK(enter_context());
    *event = new Event{current};
    return SUCCESS;
}

EXPORT int cuEventRecord(Event* event, Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream));
    event->stream = stream;
    event->at = stream->enqueued;
    return SUCCESS;
}

EXPORT int cuEventQuery(Event* event) {
    LOCK;
    CHECK(enter());
    if (!event->stream) return SUCCESS;
    if (event->stream->hangs) return NOT_READY;
    synchronize(*event->stream, event->at);
    return sticky;
}

EXPORT int cuEventSynchronize(Event* event) {
    LOCK;
    CHECK(enter(true));
    return event->stream ? wait_for(*event->stream, event->at, held) : SUCCESS;
}

EXPORT int cuEventDestroy_v2(Event* event) {
    LOCK;
    CHECK(enter());
    delete event;
    return SUCCESS;
}

static Result allocate(uint64_t* address, size_t bytes) {
    if (bytes == 0) return INVALID_VALUE;
    if (!take(*current, bytes)) return OUT_OF_MEMORY;
    size_t mapped = 0;
    void* memory = map(bytes, &mapped);
    if (!memory) return OUT_OF_MEMORY;
    // Not numbers; large buffers are left untouched, because the host has less memory.
    if (bytes <= LARGEST_COPY) std::memset(memory, 0xff, bytes);
    *address = (uint64_t)memory;
    allocations[*address] = {bytes, mapped, current->ordinal, false};
    return SUCCESS;
}

EXPORT int cuMemAllocAsync(uint64_t* address, size_t bytes, Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream));
    return allocate(address, bytes);
}

EXPORT int cuMemFreeAsync(uint64_t address, Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream));
    auto found = allocations.find(address);
    if (found == allocations.end() || found->second.is_host) {
        return broken("freed memory that is not allocated", INVALID_VALUE);
    }
    const Allocation allocation = found->second;
    if (allocation.device != current->ordinal) return broken("freed memory of another device", INVALID_VALUE);
    allocations.erase(found);
    current->used -= allocation.bytes;
    current->pending += allocation.bytes;
    return enqueue(stream, [=] { munmap((void*)address, allocation.mapped); }, false);
}

EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
    LOCK;
    CHECK(enter_context());
    *total = total_bytes();
    *free = *total - current->used - current->pending;
    return SUCCESS;
}

EXPORT int cuDeviceGetDefaultMemPool(void** pool, int device) {
    *pool = &devices[device];
    return SUCCESS;
}

EXPORT int cuMemPoolTrimTo(void*, size_t) {
    LOCK;
    return enter();
}

EXPORT int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    LOCK;
    CHECK(enter_context());
    size_t mapped = 0;
    *memory = map(bytes, &mapped);
    if (!*memory) return OUT_OF_MEMORY;
    allocations[(uint64_t)*memory] = {bytes, mapped, current->ordinal, true};
    return SUCCESS;
}

EXPORT int cuMemFreeHost(void* memory) {
    LOCK;
    CHECK(enter_context());
    auto found = allocations.find((uint64_t)memory);
    if (found == allocations.end() || !found->second.is_host) return INVALID_VALUE;
    // The driver waits for what still reads it. That this gives back freed memory is not documented.
    for (Stream* stream : std::vector<Stream*>(streams)) {
        if (stream->device == current) wait_for(*stream, ~0ull, held);
    }
    munmap(memory, found->second.mapped);
    allocations.erase(found);
    return SUCCESS;
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream));
    if (!on_device(to, bytes, current)) return broken("a copy to memory that is not allocated", INVALID_VALUE);
    const Allocation* locked = find((uint64_t)from, bytes);
    if (locked && locked->is_host) {
        return enqueue(stream, [=] { std::memcpy((void*)to, from, bytes); }, true);
    }
    auto late = std::make_shared<bool>(false);
    std::vector<unsigned char> copy((const unsigned char*)from, (const unsigned char*)from + bytes);
    const Result result = enqueue(
        stream,
        [=, copy = std::move(copy)] {
            poisoned += *late;
            *late ? std::memset((void*)to, 0xff, bytes) : std::memcpy((void*)to, copy.data(), bytes);
        },
        true);
    unguarded = late;
    return result;
}

EXPORT int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream));
    if (!on_device(from, bytes, current)) return broken("a copy from memory that is not allocated", INVALID_VALUE);
    return enqueue(stream, [=] { std::memcpy(to, (void*)from, bytes); }, true);
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream));
    if (!on_device(to, bytes, current) || !on_device(from, bytes, current)) {
        return broken("a copy between memory that is not allocated", INVALID_VALUE);
    }
    if (bytes > LARGEST_COPY) return enqueue(stream, [] {}, true);
    return enqueue(stream, [=] { std::memcpy((void*)to, (void*)from, bytes); }, true);
}

// ---- Modules and launches ----

template <typename T>
struct Taken {
    static T from(void* place) {
        T value;
        std::memcpy(&value, place, sizeof(T));
        return value;
    }
};

// The pointers that a kernel was passed.
static std::vector<uint64_t> pointers;

// Whether a kernel may use them: each is inside of a live allocation of the device.
static bool are_live(const std::vector<uint64_t>& addresses, const Device* device) {
    return std::all_of(addresses.begin(), addresses.end(), [=](uint64_t address) { return on_device(address, 1, device); });
}
template <typename T>
struct Taken<T*> {
    static T* from(void* place) {
        uint64_t address;
        std::memcpy(&address, place, sizeof(address));
        if (address) pointers.push_back(address);
        return (T*)address;
    }
};

template <typename... T, size_t... I>
static std::function<void()> bound(void (*kernel)(T...), void** given, std::index_sequence<I...>) {
    return [kernel, ... values = Taken<T>::from(given[I])] { kernel(values...); };
}

template <typename... T>
static Kernel binder(void (*kernel)(T...)) {
    return [kernel](void** given) { return bound(kernel, given, std::index_sequence_for<T...>{}); };
}

static const std::map<std::string, Kernel>& kernels_of(int element) {
#define LISTED(kernel) {#kernel, binder(kernel)},
#define TABLE(types) ([] { using namespace types; return std::map<std::string, Kernel>{ALL_KERNELS(LISTED)}; }())
    static const std::map<std::string, Kernel> KERNELS[] = {TABLE(float32), TABLE(bfloat16), TABLE(half)};
    return KERNELS[element];
}

// An image is what nvrtcGetCUBIN or nvrtcGetPTX of this library returned.
EXPORT int cuModuleLoadData(Module** module, const void* image) {
    LOCK;
    CHECK(enter_context());
    int element = -1, architecture = 0;
    const char* text = (const char*)image;
    const bool is_binary = std::sscanf(text, "\x7f" "ELF fake %d sm_%d", &element, &architecture) == 2;
    if (!is_binary && std::sscanf(text, "// fake PTX %d compute_%d", &element, &architecture) != 2) return INVALID_IMAGE;
    const int capability = version("LUMOS_FAKE_CAPABILITY", "9.0", 1000);
    const int own = capability / 1000 * 10 + capability % 1000 / 10;
    if (is_binary ? own != architecture : own < architecture) return NO_BINARY_FOR_GPU;
    if (is_binary && version("LUMOS_FAKE_DRIVER", "13.0", 1000) / 1000 < version("LUMOS_FAKE_LIBRARIES", "13.0", 1000) / 1000) {
        return NO_BINARY_FOR_GPU;
    }
    *module = new Module{element, current};
    return SUCCESS;
}

EXPORT int cuModuleUnload(Module* module) {
    LOCK;
    CHECK(enter_context());
    delete module;
    return SUCCESS;
}

EXPORT int cuModuleGetFunction(Function** function, Module* module, const char* name) {
    LOCK;
    CHECK(enter_context());
    auto& kernels = kernels_of(module->element);
    auto found = kernels.find(name);
    if (found == kernels.end()) return NOT_FOUND;
    *function = new Function{found->second, name, current};
    return SUCCESS;
}

EXPORT int cuFuncSetAttribute(Function* function, int attribute, int value) {
    LOCK;
    CHECK(enter_context());
    if (attribute != 8 || value > most_shared()) return INVALID_VALUE;
    function->most_shared = value;
    return SUCCESS;
}

EXPORT int cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, Stream* stream, void** parameters, void**) {
    LOCK;
    CHECK(enter_stream(stream, false, true));
    if (function->device != current) return broken("the kernel belongs to another context", INVALID_HANDLE);
    if (!gx || !gy || gz != 1 || gx > 0x7fffffffu || gy > 65535 || !bx || bx > 1024 || by != 1 || bz != 1) {
        return broken("a grid or block that the GPU does not have", INVALID_VALUE);
    }
    if ((int)shared > function->most_shared) return broken("more shared memory than the kernel may use", INVALID_VALUE);
    pointers.clear();
    auto kernel = function->kernel(parameters);
    if (!are_live(pointers, current)) {
        return broken(("a pointer of " + function->name + " is not in an allocation").c_str(), INVALID_VALUE);
    }
    if (stream->captured) {
        auto& addresses = stream->captured->addresses;
        addresses.insert(addresses.end(), pointers.begin(), pointers.end());
    }
    ++launches;
    return enqueue(stream, [=] { run_grid({gx, gy, 1}, bx, shared, kernel); }, true);
}

// ---- Graphs ----

EXPORT int cuStreamBeginCapture_v2(Stream* stream, int mode) {
    LOCK;
    CHECK(enter_stream(stream));
    if (setting("LUMOS_FAKE_GRAPHS", 1) == 0) return CAPTURE_UNSUPPORTED;
    if (mode != 1) return broken("a capture that forbids calls of other threads", INVALID_VALUE);
    stream->captured = new Graph;
    return SUCCESS;
}

EXPORT int cuStreamEndCapture(Stream* stream, Graph** graph) {
    LOCK;
    CHECK(enter_stream(stream, false, true));
    *graph = stream->captured;
    stream->captured = nullptr;
    if (!*graph) return INVALID_VALUE;
    if ((*graph)->is_valid) return SUCCESS;
    delete *graph;
    *graph = nullptr;
    return CAPTURE_INVALIDATED;
}

EXPORT int cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long) {
    LOCK;
    CHECK(enter_context());
    *executable = new Graph(*graph);
    return SUCCESS;
}

EXPORT int cuGraphLaunch(Graph* graph, Stream* stream) {
    LOCK;
    CHECK(enter_stream(stream));
    if (!are_live(graph->addresses, current)) return broken("a graph uses memory that was freed", ILLEGAL_ADDRESS);
    ++graphs;
    for (auto& operation : graph->operations) enqueue(stream, operation, true);
    return SUCCESS;
}

EXPORT int cuGraphExecDestroy(Graph* graph) {
    delete graph;
    return SUCCESS;
}

EXPORT int cuGraphDestroy(Graph* graph) {
    delete graph;
    return SUCCESS;
}

// ---- cuBLAS ----

enum BlasResult { BLAS_SUCCESS = 0, BLAS_NOT_INITIALIZED = 1, BLAS_ALLOC_FAILED = 3, BLAS_INVALID_VALUE = 7, BLAS_FAILED = 13 };

EXPORT int cublasGetProperty(int property, int* value) {
    const int found = version("LUMOS_FAKE_LIBRARIES", "13.0", 1000);
    *value = property == 0 ? found / 1000 : property == 1 ? found % 1000 / 10 : 0;
    return BLAS_SUCCESS;
}

EXPORT int cublasCreate_v2(Blas** handle) {
    LOCK;
    if (enter_context() != SUCCESS) return BLAS_NOT_INITIALIZED;
    // A library of a later CUDA than the driver's.
    if (version("LUMOS_FAKE_DRIVER", "13.0", 1000) / 1000 < version("LUMOS_FAKE_LIBRARIES", "13.0", 1000) / 1000) {
        return BLAS_NOT_INITIALIZED;
    }
    if (!take(*current, HANDLE_BYTES)) return BLAS_ALLOC_FAILED;
    *handle = new Blas{current};
    return BLAS_SUCCESS;
}

EXPORT int cublasDestroy_v2(Blas* handle) {
    LOCK;
    if (enter_context() != SUCCESS) return BLAS_NOT_INITIALIZED;
    if (handle->device != current) return broken("cublasDestroy in another context", INVALID_CONTEXT), BLAS_FAILED;
    if (check_uncaptured(current) != SUCCESS) return BLAS_FAILED;
    current->used -= HANDLE_BYTES;
    delete handle;
    return BLAS_SUCCESS;
}

// Resets the workspace, as cuBLAS does.
EXPORT int cublasSetStream_v2(Blas* handle, Stream* stream) {
    handle->stream = stream;
    handle->has_set_workspace = false;
    handle->workspace_bytes = 32 << 20;
    return BLAS_SUCCESS;
}

EXPORT int cublasSetWorkspace_v2(Blas* handle, void* workspace, size_t bytes) {
    LOCK;
    if (enter_context() != SUCCESS) return BLAS_NOT_INITIALIZED;
    if (bytes > 0 && ((uint64_t)workspace % 256 != 0 || !on_device((uint64_t)workspace, bytes, current))) return BLAS_INVALID_VALUE;
    handle->has_set_workspace = true;
    handle->workspace_bytes = bytes;
    return BLAS_SUCCESS;
}

template <typename T, typename Widen>
static void product(int m, int n, int k, const T* a, int lda, const T* b, int ldb, float* c, int ldc, bool splits,
                    Widen widened) {
    for (int column = 0; column < n; ++column) {
        for (int row = 0; row < m; ++row) {
            const T *left = a + (size_t)row * lda, *right = b + (size_t)column * ldb;
            const int half = splits && n < 4 ? k / 2 : k;
            float sums[2] = {0, 0};
            for (int at = 0; at < half; ++at) sums[0] += widened(left[at]) * widened(right[at]);
            for (int at = half; at < k; ++at) sums[1] += widened(left[at]) * widened(right[at]);
            c[(size_t)column * ldc + row] = sums[0] + sums[1];
        }
    }
}

EXPORT int cublasGemmEx(Blas* handle, int transa, int transb, int m, int n, int k, const void*, const void* a, int atype,
                        int lda, const void* b, int btype, int ldb, const void*, void* c, int ctype, int ldc, int, int) {
    LOCK;
    if (enter_stream(handle->stream, false, true) != SUCCESS) return BLAS_FAILED;
    if (handle->stream->captured && !handle->has_set_workspace) {
        handle->stream->captured->is_valid = false;
        return broken("a captured product with a workspace of its own", CAPTURE_UNSUPPORTED), BLAS_FAILED;
    }
    if (handle->device != current) return broken("cublasGemmEx in another context", INVALID_CONTEXT), BLAS_FAILED;
    if (transa != 1 || transb != 0 || atype != btype || ctype != 0 || lda < k || ldb < k || ldc < m) return BLAS_INVALID_VALUE;
    if (!current->has_libraries) {
        if (!take(*current, LIBRARY_BYTES)) return BLAS_ALLOC_FAILED;
        current->has_libraries = true;
    }
    const uint64_t width = atype == 0 ? 4 : 2;
    if (!on_device((uint64_t)a, ((uint64_t)(m - 1) * lda + k) * width, current) ||
        !on_device((uint64_t)b, ((uint64_t)(n - 1) * ldb + k) * width, current) ||
        !on_device((uint64_t)c, ((uint64_t)(n - 1) * ldc + m) * 4, current)) {
        return broken("a matrix that is not allocated", INVALID_VALUE), BLAS_INVALID_VALUE;
    }
    if (handle->stream->captured) {
        auto& addresses = handle->stream->captured->addresses;
        addresses.insert(addresses.end(), {(uint64_t)a, (uint64_t)b, (uint64_t)c});
    }
    ++products;
    const bool splits = handle->workspace_bytes > 0;
    if ((uint64_t)m * n * k > LARGEST_PRODUCT) {
        auto run = [=] {
            const unsigned char *left = (const unsigned char*)a, *right = (const unsigned char*)b;
            auto is_unwritten = [](const unsigned char* bytes) {
                return std::all_of(bytes, bytes + 64, [](unsigned char byte) { return byte == 0 || byte == 0xff; });
            };
            unwritten += is_unwritten(left) || is_unwritten(right);
            std::memset(c, 0xff, 4);
        };
        return enqueue(handle->stream, run, true);
    }
    auto run = [=] {
        auto* out = (float*)c;
        if (atype == 0) {
            product(m, n, k, (const float*)a, lda, (const float*)b, ldb, out, ldc, splits, [](float value) { return value; });
        } else if (atype == 14) {
            auto widened = [](unsigned short value) { return __uint_as_float((uint32_t)value << 16); };
            product(m, n, k, (const unsigned short*)a, lda, (const unsigned short*)b, ldb, out, ldc, splits, widened);
        } else {
            product(m, n, k, (const unsigned short*)a, lda, (const unsigned short*)b, ldb, out, ldc, splits, half::widen);
        }
    };
    return enqueue(handle->stream, run, true);
}

// ---- NVRTC ----

EXPORT int nvrtcVersion(int* major, int* minor) {
    const int found = version("LUMOS_FAKE_LIBRARIES", "13.0", 1000);
    *major = found / 1000, *minor = found % 1000 / 10;
    return SUCCESS;
}

// What NVRTC 13.0 and 12.8 compile for.
static std::vector<int> supported() {
    std::vector<int> found = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
    if (version("LUMOS_FAKE_LIBRARIES", "13.0", 1000) < 13000) found = {50, 60, 70, 75, 80, 86, 89, 90, 100, 120};
    return found;
}

EXPORT int nvrtcGetNumSupportedArchs(int* count) {
    *count = (int)supported().size();
    return SUCCESS;
}

EXPORT int nvrtcGetSupportedArchs(int* architectures) {
    for (int one : supported()) *architectures++ = one;
    return SUCCESS;
}

EXPORT int nvrtcCreateProgram(Program** program, const char*, const char*, int, const char* const*, const char* const*) {
    *program = new Program;
    return SUCCESS;
}

EXPORT int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    int element = -1, architecture = 0;
    bool is_virtual = false;
    for (int index = 0; index < count; ++index) {
        std::sscanf(options[index], "-DLUMOS_ELEMENT=%d", &element);
        std::sscanf(options[index], "--gpu-architecture=sm_%d", &architecture);
        if (std::sscanf(options[index], "--gpu-architecture=compute_%d", &architecture) == 1) is_virtual = true;
    }
    auto known = supported();
    if (element < 0 || std::find(known.begin(), known.end(), architecture) == known.end()) {
        program->log = "nvrtc: error: invalid value for --gpu-architecture";
        return 5;
    }
    const std::string tail = " " + std::to_string(element);
    program->ptx = "// fake PTX" + tail + " compute_" + std::to_string(architecture);
    if (!is_virtual) program->code = "\x7f" "ELF fake" + tail + " sm_" + std::to_string(architecture);
    return SUCCESS;
}

EXPORT int nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
    *bytes = program->log.size() + 1;
    return SUCCESS;
}

EXPORT int nvrtcGetProgramLog(Program* program, char* log) {
    std::strcpy(log, program->log.c_str());
    return SUCCESS;
}

EXPORT int nvrtcGetCUBINSize(Program* program, size_t* bytes) {
    *bytes = program->code.empty() ? 0 : program->code.size() + 1;
    return SUCCESS;
}

EXPORT int nvrtcGetCUBIN(Program* program, char* code) {
    std::memcpy(code, program->code.c_str(), program->code.size() + 1);
    return SUCCESS;
}

EXPORT int nvrtcGetPTXSize(Program* program, size_t* bytes) {
    *bytes = program->ptx.size() + 1;
    return SUCCESS;
}

EXPORT int nvrtcGetPTX(Program* program, char* code) {
    std::memcpy(code, program->ptx.c_str(), program->ptx.size() + 1);
    return SUCCESS;
}

EXPORT int nvrtcDestroyProgram(Program** program) {
    delete *program;
    *program = nullptr;
    return SUCCESS;
}
