// Products of one row of a few-bit weight with some rows of floats. There is one set of kernels for each instruction
// set (weight_rows.inc is compiled once for each). All give the same bits.
#pragma once
#include <cstdint>

namespace lutra {

// A row consists of blocks of 64 bytes. An incomplete last block is read from `tail`, which has zeros behind its end.
constexpr int64_t kWeightBlock = 64, kWeightLanes = 16;
constexpr int kWeightInputs = 4;  // the most rows of floats

struct WeightRow {
  const void* data = nullptr;
  const void* tail = nullptr;
  int64_t blocks = 0;
  // `inputs` rows of floats, with as many elements as the blocks. For int4 a block of 128 is sorted by nibble, then by
  // word.
  const float* x = nullptr;
  int64_t x_row = 0;
  int inputs = 0;
  // Only for int4: sums of x over the nibbles of each word, 16 a block; scale and zero of each group.
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
