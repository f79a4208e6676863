// What kernels use of CUDA that does not concern other threads, on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

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

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
static inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w) {
    return {x, y, z, w};
}
static inline int __clz(uint32_t value) { return value ? __builtin_clz(value) : 32; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// On a GPU rounded once.
static inline float __fmaf_rn(float one, float other, float sum) { return one * other + sum; }

// Each rounded by itself, which a compiler might not do with `a * b - c`.
static float __fmul_rn(float one, float other) { return one * other; }
static float __fsub_rn(float one, float other) { return one - other; }

static uint32_t __umulhi(uint32_t one, uint32_t other) { return (uint64_t)one * other >> 32; }
static uint64_t __umul64hi(uint64_t one, uint64_t other) { return (unsigned __int128)one * other >> 64; }

// Half precision by its definition (IEEE 754 binary16), to the nearest with ties to even.
[[maybe_unused]] static float half_to_float(unsigned short half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const float sign = half >> 15 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp((float)fraction, -24));
}

// The same, faster for many numbers.
[[maybe_unused]] static float half_from_table(unsigned short half) {
    static const std::vector<float> VALUES = [] {
        std::vector<float> values;
        for (uint32_t bits = 0; bits <= 0xffff; ++bits) values.push_back(half_to_float((unsigned short)bits));
        return values;
    }();
    return VALUES[half];
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
