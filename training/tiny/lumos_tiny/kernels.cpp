// Causal self-attention over packed sequences and the SwiGLU activation, forward and backward, for one thread.
//
// A batch is one row of tokens in which sequences follow each other, so nothing is padded. `qkv` is [tokens, 3, heads, 32] in bfloat16, queries
// and keys before their rotary embedding, `out` [tokens, heads, 32] in bfloat16, `lse` [heads, tokens] the logarithm of each row's sum. Sequence `s` is
// tokens starts[s] .. starts[s + 1]. `cosines` and `sines` are [positions, 16]. Sums are in float32, four query rows at a time.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int D = 32, HALF = 16, ROWS = 4;
typedef float vec __attribute__((vector_size(64)));
typedef float line[D] __attribute__((aligned(64)));

float to_float(uint16_t x) {
    uint32_t bits = uint32_t(x) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

vec load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

void store(float *p, vec v) { memcpy(p, &v, sizeof v); }

// Reads a row of 32 values, scaled.
void read(const uint16_t *from, float scale, float *to) {
    for (int d = 0; d < D; d++) to[d] = to_float(from[d]) * scale;
}

void write(const float *from, uint16_t *to) {
    for (int d = 0; d < D; d++) to[d] = to_bf16(from[d]);
}

// Rotates a row by its position, or back if `sign` is -1.
void rotate(float *row, const float *c, const float *s, float sign) {
    for (int d = 0; d < HALF; d++) {
        float a = row[d], b = row[d + HALF];
        row[d] = a * c[d] - sign * b * s[d];
        row[d + HALF] = b * c[d] + sign * a * s[d];
    }
}

// One head of a sequence. Rows and columns after its length have any finite values; their weights are zero or about 1e-35.
struct Head {
    int length, width;  // of the sequence, and up to a multiple of sixteen
    std::vector<float> q, k, v, kt, vt, out, dq, dk, dv, p, dp;

    void read_all(const uint16_t *qkv, int stride, int hidden, int length_, const float *cosines, const float *sines) {
        length = length_, width = (length + 15) / 16 * 16;
        if (size_t size = size_t(width) * D; q.size() < size) {
            for (auto *part : {&q, &k, &v, &kt, &vt, &out, &dq, &dk, &dv}) part->resize(size);
            p.resize(size_t(width) * ROWS), dp.resize(size_t(width) * ROWS);
        }
        for (int i = 0; i < length; i++, qkv += stride) {
            read(qkv, 1 / std::sqrt(float(D)), &q[i * D]);
            read(qkv + hidden, 1, &k[i * D]);
            read(qkv + 2 * hidden, 1, &v[i * D]);
            rotate(&q[i * D], cosines + i * HALF, sines + i * HALF, 1);
            rotate(&k[i * D], cosines + i * HALF, sines + i * HALF, 1);
        }
        transpose(k, kt);
    }

    void transpose(const std::vector<float> &from, std::vector<float> &to) {
        for (int i = 0; i < length; i++)
            for (int d = 0; d < D; d++) to[size_t(d) * width + i] = from[i * D + d];
    }

    // Products of four rows with the columns before `end`.
    void products(const float *a, const std::vector<float> &columns, int end, float *to) {
        for (int j = 0; j < end; j += 16) {
            vec s0{}, s1{}, s2{}, s3{};
            for (int d = 0; d < D; d++) {
                vec column = load(&columns[size_t(d) * width + j]);
                s0 += a[d] * column, s1 += a[D + d] * column, s2 += a[2 * D + d] * column, s3 += a[3 * D + d] * column;
            }
            store(to + j, s0), store(to + width + j, s1), store(to + 2 * width + j, s2), store(to + 3 * width + j, s3);
        }
    }

    // Sums of the rows before `end`, weighted by four rows of weights.
    void weighted(const float *weights, const std::vector<float> &values, int end, float *to) {
        vec a0{}, a1{}, a2{}, a3{}, b0{}, b1{}, b2{}, b3{};
        const float *w0 = weights, *w1 = w0 + width, *w2 = w1 + width, *w3 = w2 + width;
        for (int j = 0; j < end; j++) {
            vec a = load(&values[j * D]), b = load(&values[j * D + HALF]);
            a0 += w0[j] * a, a1 += w1[j] * a, a2 += w2[j] * a, a3 += w3[j] * a;
            b0 += w0[j] * b, b1 += w1[j] * b, b2 += w2[j] * b, b3 += w3[j] * b;
        }
        store(to, a0), store(to + D, a1), store(to + 2 * D, a2), store(to + 3 * D, a3);
        to += HALF;
        store(to, b0), store(to + D, b1), store(to + 2 * D, b2), store(to + 3 * D, b3);
    }

    // Adds the outer products of four rows of weights and four rows to the rows before `end`.
    void spread(const float *weights, const float *from, int end, std::vector<float> &to) {
        vec a0 = load(from), a1 = load(from + D), a2 = load(from + 2 * D), a3 = load(from + 3 * D);
        from += HALF;
        vec b0 = load(from), b1 = load(from + D), b2 = load(from + 2 * D), b3 = load(from + 3 * D);
        const float *w0 = weights, *w1 = w0 + width, *w2 = w1 + width, *w3 = w2 + width;
        for (int j = 0; j < end; j++) {
            store(&to[j * D], load(&to[j * D]) + w0[j] * a0 + w1[j] * a1 + w2[j] * a2 + w3[j] * a3);
            store(&to[j * D + HALF], load(&to[j * D + HALF]) + w0[j] * b0 + w1[j] * b1 + w2[j] * b2 + w3[j] * b3);
        }
    }

    // Replaces a row of scores by exp(score - shift), and by about 1e-35 after column `last`. Returns the sum.
    float exponentials(float *row, int last, int end, float shift) {
        float sum = 0;
        for (int j = last + 1; j < end; j++) row[j] = shift - 80;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j < end; j++) row[j] = expf(row[j] - shift), sum += row[j];
        return sum;
    }

    int end(int row) const { return std::min((row + ROWS + 15) / 16 * 16, width); }
};

}  // namespace

extern "C" void attention_forward(const uint16_t *qkv, const int32_t *starts, int sequences, int heads, const float *cosines, const float *sines,
                                  int tokens, uint16_t *out, float *lse) {
    Head head;
    int hidden = heads * D, stride = 3 * hidden;
    for (int s = 0; s < sequences; s++)
        for (int h = 0; h < heads; h++) {
            int first = starts[s];
            head.read_all(qkv + size_t(first) * stride + h * D, stride, hidden, starts[s + 1] - first, cosines, sines);
            for (int i = 0; i < head.length; i += ROWS) {
                int end = head.end(i);
                head.products(&head.q[i * D], head.kt, end, head.p.data());
                float sums[ROWS];
                for (int r = 0; r < ROWS && i + r < head.length; r++) {
                    float *row = &head.p[size_t(r) * head.width], most = row[0];
                    for (int j = 1; j <= i + r; j++) most = std::max(most, row[j]);
                    sums[r] = head.exponentials(row, i + r, end, most);
                    lse[size_t(h) * tokens + first + i + r] = most + std::log(sums[r]);
                }
                line rows[ROWS];
                head.weighted(head.p.data(), head.v, end, rows[0]);
                for (int r = 0; r < ROWS && i + r < head.length; r++) {
                    for (int d = 0; d < D; d++) rows[r][d] /= sums[r];
                    write(rows[r], out + size_t(first + i + r) * hidden + h * D);
                }
            }
        }
}

extern "C" void attention_backward(const uint16_t *qkv, const int32_t *starts, int sequences, int heads, const float *cosines, const float *sines,
                                   int tokens, const uint16_t *out, const float *lse, const uint16_t *dout, uint16_t *dqkv) {
    Head head;
    int hidden = heads * D, stride = 3 * hidden;
    for (int s = 0; s < sequences; s++)
        for (int h = 0; h < heads; h++) {
            int first = starts[s];
            head.read_all(qkv + size_t(first) * stride + h * D, stride, hidden, starts[s + 1] - first, cosines, sines);
            head.transpose(head.v, head.vt);
            memset(head.dk.data(), 0, size_t(head.width) * D * 4), memset(head.dv.data(), 0, size_t(head.width) * D * 4);
            for (int i = 0; i < head.length; i++) read(dout + size_t(first + i) * hidden + h * D, 1, &head.out[i * D]);
            for (int i = 0; i < head.length; i += ROWS) {
                int end = head.end(i);
                head.products(&head.q[i * D], head.kt, end, head.p.data());
                head.products(&head.out[i * D], head.vt, end, head.dp.data());
                for (int r = 0; r < ROWS; r++) {
                    float *p = &head.p[size_t(r) * head.width], *dp = &head.dp[size_t(r) * head.width];
                    if (i + r >= head.length) {
                        memset(p, 0, end * 4), memset(dp, 0, end * 4);
                        continue;
                    }
                    line row;
                    read(out + size_t(first + i + r) * hidden + h * D, 1, row);
                    float mean = 0;
                    for (int d = 0; d < D; d++) mean += row[d] * head.out[(i + r) * D + d];
                    head.exponentials(p, i + r, end, lse[size_t(h) * tokens + first + i + r]);
                    for (int j = 0; j < end; j++) dp[j] = p[j] * (dp[j] - mean);
                }
                head.weighted(head.dp.data(), head.k, end, &head.dq[i * D]);
                head.spread(head.p.data(), &head.out[i * D], end, head.dv);
                head.spread(head.dp.data(), &head.q[i * D], end, head.dk);
            }
            uint16_t *to = dqkv + size_t(first) * stride + h * D;
            for (int i = 0; i < head.length; i++, to += stride) {
                for (int d = 0; d < D; d++) head.dq[i * D + d] /= std::sqrt(float(D));
                rotate(&head.dq[i * D], cosines + i * HALF, sines + i * HALF, -1);
                rotate(&head.dk[i * D], cosines + i * HALF, sines + i * HALF, -1);
                write(&head.dq[i * D], to), write(&head.dk[i * D], to + hidden), write(&head.dv[i * D], to + 2 * hidden);
            }
        }
}

// 1 / (1 + exp(-x)). Without the limit, the division by an infinite sum is not a number, because -ffast-math refines an estimate of it.
inline float sigmoid(float x) { return 1 / (1 + expf(std::min(-x, 80.0f))); }

// `both` is [tokens, 2, size] in bfloat16, gate and up, and `out` [tokens, size].
extern "C" void swiglu_forward(const uint16_t *both, int64_t tokens, int size, uint16_t *out) {
    for (; tokens--; both += 2 * size, out += size)
#pragma omp simd
        for (int i = 0; i < size; i++) {
            float gate = to_float(both[i]);
            out[i] = to_bf16(gate * sigmoid(gate) * to_float(both[size + i]));
        }
}

extern "C" void swiglu_backward(const uint16_t *both, int64_t tokens, int size, const uint16_t *dout, uint16_t *dboth) {
    for (; tokens--; both += 2 * size, dboth += 2 * size, dout += size)
#pragma omp simd
        for (int i = 0; i < size; i++) {
            float gate = to_float(both[i]), up = to_float(both[size + i]), d = to_float(dout[i]), s = sigmoid(gate);
            dboth[i] = to_bf16(d * up * s * (1 + gate * (1 - s)));
            dboth[size + i] = to_bf16(d * gate * s);
        }
}
