// weight_int8pack_mm and weight_int4pack_mm: products of floats with a few-bit weight. The weight is read once for four
// rows of floats, and widened on the way. For many rows it is widened first, a part at a time, as an operand of mm.
//
// Invariants:
// 1. Work is cut by rows of the weight. Each row has a fixed order of its own, so bits do not depend on threads.
// 2. The choice between these ways depends on the number of rows alone.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/core/cpu.h"
#include "ops/core/half.h"
#include "ops/extern/cpu/elements.h"
#include "ops/extern/cpu/half_rows.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/scratch.h"
#include "ops/extern/cpu/weight_rows.h"

namespace lutra {
namespace {

constexpr int64_t kPiece = 32;      // rows of the weight in a thread's piece
constexpr int64_t kFewInputs = 32;  // above it, mm's blocks are worth widening the weight
constexpr int64_t kWideRows = 256;

const WeightKernels& kernels_for(ExternIsa isa) {
  if constexpr (cpu::kX64) {
    if (isa >= ExternIsa::kAvx512) return kWeightAvx512;
    if (isa == ExternIsa::kAvx2) return kWeightAvx2;
  }
  return kWeightBase;
}

const char* const kWho = "weight_mm";

// Converts n elements of a float dtype, `stride` apart, to float32.
void widen(const ExternView& v, int64_t at, int64_t stride, float* to, int64_t n) {
  if (is_half(v.dtype)) return widen_row(v.dtype, static_cast<const uint16_t*>(v.data) + at, stride, to, n);
  const auto* from = static_cast<const float*>(v.data) + at;
  for (int64_t i = 0; i < n; i++) to[i] = from[i * stride];
}

struct Problem {
  ExternView x, w, scales, out;  // w: rows of unit stride
  bool is_int4 = false;
  int64_t group = 0, inputs = 0, n = 0, k = 0, blocks = 0;
  WeightKernels kernels;
  const char* row(int64_t r) const { return static_cast<const char*>(w.data) + r * w.strides[0]; }
  int64_t row_bytes() const { return is_int4 ? k / 2 : k; }
  int64_t elements() const { return blocks * kWeightBlock * (is_int4 ? 2 : 1); }  // of a row of whole blocks
};

void make_rows(ExternView& w) {
  if (w.strides[1] == 1) return;
  char* to = scratch<char>(Scratch::kWeightRows, w.numel(), kWho);
  const auto* from = static_cast<const char*>(w.data);
  for (int64_t r = 0; r < w.sizes[0]; r++) {
    for (int64_t c = 0; c < w.sizes[1]; c++) to[r * w.sizes[1] + c] = from[r * w.strides[0] + c * w.strides[1]];
  }
  w.data = to, w.strides[0] = w.sizes[1], w.strides[1] = 1;
}

Problem problem_of(const ExternCall& call) {
  Problem p{call.in[0], call.in[1], call.in[2], call.out[0]};
  p.is_int4 = call.op == OpId::weight_int4pack_mm, p.group = p.is_int4 ? call.ints[0] : 0;
  p.kernels = kernels_for(call.isa);
  make_rows(p.w);
  p.inputs = p.x.sizes[0], p.n = p.out.sizes[1], p.k = p.x.sizes[1];
  p.blocks = (p.row_bytes() + kWeightBlock - 1) / kWeightBlock;
  return p;
}

// The inputs in the layout that the kernels read.
struct Inputs {
  float* x;
  float* sums;
};

// Sorts blocks of 128 by nibble, then by word. `line` is a temporary copy.
void by_nibbles(float* x, float* sums, int64_t blocks) {
  float line[2 * kWeightBlock];
  for (int64_t b = 0; b < blocks; b++, x += 2 * kWeightBlock, sums += kWeightLanes) {
    std::copy_n(x, 2 * kWeightBlock, line);
    for (int64_t l = 0; l < kWeightLanes; l++) {
      float sum = 0;
      for (int64_t j = 0; j < 8; j++) sum += x[16 * j + l] = line[8 * l + j];
      sums[l] = sum;
    }
  }
}

Inputs inputs_of(const Problem& p) {
  const int64_t row = p.elements(), sums = p.is_int4 ? p.blocks * kWeightLanes : 0;
  float* x = scratch<float>(Scratch::kWeightInput, p.inputs * (row + sums), kWho);
  const Inputs in{x, x + p.inputs * row};
  for (int64_t m = 0; m < p.inputs; m++) {
    widen(p.x, m * p.x.strides[0], p.x.strides[1], x + m * row, p.k);
    std::fill(x + m * row + p.k, x + (m + 1) * row, 0.0f);
    if (p.is_int4) by_nibbles(x + m * row, in.sums + m * sums, p.blocks);
  }
  return in;
}

// The bytes of a row's incomplete block, with zeros behind them.
struct Tail {
  alignas(64) char bytes[kWeightBlock] = {};
  bool exists;
  explicit Tail(const Problem& p) : exists(p.row_bytes() % kWeightBlock != 0) {}
  const void* of(const Problem& p, int64_t r) {
    if (!exists) return nullptr;
    std::memcpy(bytes, p.row(r) + (p.blocks - 1) * kWeightBlock, size_t(p.row_bytes() % kWeightBlock));
    return bytes;
  }
};

// Returns the scales of rows [begin, end): one each, or for int4 pairs of scale and zero, by group, then row.
const float* scales_of(const Problem& p, int64_t begin, int64_t end) {
  const int64_t rows = end - begin, groups = p.is_int4 ? p.k / p.group : 1;
  float* to = scratch<float>(Scratch::kWeightScales, 2 * rows * groups, kWho);
  if (!p.is_int4) return widen(p.scales, begin * p.scales.strides[0], p.scales.strides[0], to, rows), to;
  const int64_t* s = p.scales.strides;
  for (int64_t g = 0; g < groups; g++) {
    if (s[2] == 1 && s[1] == 2) {
      widen(p.scales, g * s[0] + begin * s[1], 1, to + g * 2 * rows, 2 * rows);
      continue;
    }
    for (int64_t r = 0; r < rows; r++) {
      widen(p.scales, g * s[0] + (begin + r) * s[1], s[2], to + (g * rows + r) * 2, 2);
    }
  }
  return to;
}

void put(const ExternView& out, int64_t m, int64_t r, float v) {
  const int64_t at = m * out.strides[0] + r * out.strides[1];
  if (is_half(out.dtype)) return narrow_row(out.dtype, &v, static_cast<uint16_t*>(out.data) + at, 1, 1);
  static_cast<float*>(out.data)[at] = v;
}

void multiply_rows(const Problem& p, const Inputs& in, int64_t begin, int64_t end) {
  const float* scales = scales_of(p, begin, end);
  const int64_t elements = p.elements();
  Tail tail(p);
  WeightRow row;
  row.blocks = p.blocks, row.x_row = elements, row.x_sums_row = p.blocks * kWeightLanes;
  row.group = p.group, row.groups = p.is_int4 ? p.k / p.group : 0, row.scales_step = 2 * (end - begin);
  for (int64_t r = begin; r < end; r++) {
    row.data = p.row(r), row.tail = tail.of(p, r), row.scales = scales + 2 * (r - begin);
    for (int64_t m = 0; m < p.inputs; m += kWeightInputs) {
      float sums[kWeightInputs];
      row.inputs = int(std::min<int64_t>(kWeightInputs, p.inputs - m));
      row.x = in.x + m * elements, row.x_sums = in.sums + m * row.x_sums_row;
      (p.is_int4 ? p.kernels.int4 : p.kernels.int8)(row, sums);
      for (int i = 0; i < row.inputs; i++) put(p.out, m + i, r, p.is_int4 ? sums[i] : sums[i] * scales[r - begin]);
    }
  }
}

// Converts rows [begin, end) to float32.
void widen_rows(const Problem& p, float* to, int64_t begin, int64_t end) {
  const float* scales = scales_of(p, begin, end);
  for (int64_t r = begin; r < end; r++, to += p.k) {
    const char* from = p.row(r);
    for (int64_t i = 0; i < p.k; i++) {
      if (!p.is_int4) {
        to[i] = float(int8_t(from[i])) * scales[r - begin];
        continue;
      }
      const float* of = scales + (i / p.group * (end - begin) + r - begin) * 2;
      const int value = ((uint8_t(from[i / 2]) >> i % 2 * 4 & 15) ^ 8) - 8;
      to[i] = std::fma(float(value), of[0], of[1]);
    }
  }
}

void share(const ExternCall& call, int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (call.parallel)
    call.parallel(n, grain, body);
  else
    body(0, n);
}

ExternView matrix(void* data, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  ExternView v;
  v.data = data, v.dtype = DType::kFloat32, v.dim = 2;
  v.sizes[0] = rows, v.sizes[1] = columns, v.strides[0] = row, v.strides[1] = column;
  return v;
}

void multiply_widened(const ExternCall& call, const Problem& p) {
  float* x = scratch<float>(Scratch::kWeightInput, p.inputs * p.k, kWho);
  for (int64_t m = 0; m < p.inputs; m++) widen(p.x, m * p.x.strides[0], p.x.strides[1], x + m * p.k, p.k);
  float* wide = scratch<float>(Scratch::kWeightWide, kWideRows * p.k, kWho);
  float* out = scratch<float>(Scratch::kWeightOut, kWideRows * p.inputs, kWho);
  for (int64_t first = 0; first < p.n; first += kWideRows) {
    const int64_t rows = std::min(kWideRows, p.n - first);
    share(call, rows, 8,
          [&](int64_t begin, int64_t end) { widen_rows(p, wide + begin * p.k, first + begin, first + end); });
    const ExternView in[] = {matrix(x, p.inputs, p.k, p.k, 1), matrix(wide, p.k, rows, 1, p.k)};
    const ExternView product = matrix(out, p.inputs, rows, rows, 1);
    ExternCall mm = call;
    mm.op = OpId::mm, mm.in = in, mm.out = {&product, 1}, mm.ints = {};
    run_extern(mm);
    for (int64_t m = 0; m < p.inputs; m++) {
      for (int64_t r = 0; r < rows; r++) put(p.out, m, first + r, out[m * rows + r]);
    }
  }
}

}  // namespace

bool weight_mm_supports(DType dtype) { return is_float(dtype) && size_of(dtype) <= 4; }

void run_weight_mm(const ExternCall& call) {
  if (call.out[0].numel() == 0) return;
  const Problem p = problem_of(call);
  if (p.inputs > kFewInputs) return multiply_widened(call, p);
  const Inputs in = inputs_of(p);
  const int64_t pieces = (p.n + kPiece - 1) / kPiece;
  const double bytes = double(kPiece * p.row_bytes()) * double(p.inputs);
  share(call, pieces, std::max<int64_t>(1, int64_t(2e5 / std::max(bytes, 1.0))), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) multiply_rows(p, in, i * kPiece, std::min(p.n, (i + 1) * kPiece));
  });
}

}  // namespace lutra
