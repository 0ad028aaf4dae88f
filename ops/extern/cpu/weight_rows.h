// One row of a weight of few bits and some rows of floats in, their sums of products out: one set of kernels an
// instruction set (weight_rows.inc is compiled once for each), the same bits in all.
#pragma once
#include <cstdint>

namespace lutra {

// A row lies in blocks of 64 bytes; the last one is read from `tail` where it is no whole one, zeros behind its end.
constexpr int64_t kWeightBlock = 64, kWeightLanes = 16;
constexpr int kWeightInputs = 4;  // the most rows of floats

struct WeightRow {
  const void* data = nullptr;
  const void* tail = nullptr;
  int64_t blocks = 0;
  // `inputs` rows of floats, as many as blocks have elements. For int4 a block of 128 lies by nibble, then by word.
  const float* x = nullptr;
  int64_t x_row = 0;
  int inputs = 0;
  // int4 alone. Sums of x over the nibbles of each word, 16 a block; scale and zero of each group.
  const float* x_sums = nullptr;
  int64_t x_sums_row = 0;
  const float* scales = nullptr;
  int64_t scales_step = 0, group = 0, groups = 0;
};

struct WeightKernels {
  void (*int8)(const WeightRow& row, float* sums);
  void (*int4)(const WeightRow& row, float* sums);
};
extern const WeightKernels kWeightBase, kWeightAvx2, kWeightAvx512;

}  // namespace lutra
