// The numerics policy: every number that decides in which order terms are summed, and so decides bits. It is a table by
// kind of device and depends on no machine. A sum has the same bits on every machine of a kind, with any number of
// threads. Numbers that only make code fast are in jit/device/backend.h.
#pragma once
#include <cstdint>

namespace lutra::numerics {

// Raise it with every change of a number below, or of the steps of a function or a product: results then have other
// bits than before. Caches of code have it in their keys.
inline constexpr int kVersion = 7;

// How one kind of device splits a reduction.
struct Reductions {
  // The number of partial results along rows and down columns.
  int32_t row_lanes, column_lanes;
  // The number of partial results if reduced dimensions lie on both sides of a kept one (a norm's sums by channel),
  // whichever of them is innermost in memory. 0: the same as rows and columns.
  int32_t around_lanes;
  // Terms in a block. Partial results of float32 (half types are summed in it too) are summed in such blocks, so that
  // the relative error of terms of one sign stays below 1e-6, however many there are.
  int32_t block;
  // The number of parts of a large reduction. `chunks` is for one to at most `rows` values, `column_chunks` for one to
  // a row of at most `columns` values. A reduction to at most `narrow` values has `narrow_chunks` parts, which are
  // more. keeps_lanes: the parts of a column are joined in as many partial results as the column has. deep: if the
  // outermost dimension is short, the next one is cut too.
  int64_t chunks, column_chunks, narrow_chunks, rows, columns, narrow;
  bool keeps_lanes, deep;
};
// Few wide threads: a lane is an element of a vector register, a part is for a core.
inline constexpr Reductions kCpuReductions = {32, 1, 0, 32, 64, 16, 16, 1, 64, 64, false, false};
// Many narrow threads: a lane is a thread of a group.
inline constexpr Reductions kGpuReductions = {1024, 32, 32, 32, 512, 64, 256, 256, 2048, 128, true, true};

// kLargeReduction: a reduction to one value is cut from so many elements on. kShortRow: a row of fewer elements is not
// cut.
inline constexpr int64_t kLargeReduction = 1 << 18, kShortRow = 256;
// When a reduction is cut: the least number of steps of each chunk, and the least number of terms of each of several
// rows.
inline constexpr int64_t kChunkSteps = 64, kRowSteps = 256;
// For a reduction around a kept dimension: the outer steps from which it is cut by them, the least terms of a part
// (where possible), the terms from which it is cut further, and the most outer parts.
inline constexpr int64_t kAroundSteps = 8, kAroundTerms = 64, kAroundLong = 2048, kAroundParts = 2048;
// The most taps of a pool's window that are summed as one expression. A larger window is a loop.
inline constexpr int64_t kUnrolledTaps = 32;

// For a CPU's products: the terms of one chain of fused multiply-adds. The sums of chains are added in order.
inline constexpr int64_t kProductSteps = 256;
// For products of bfloat16: the terms of a block, whose even and odd terms are a chain each, and the terms whose blocks
// are added to one sum. These sums are added in order.
inline constexpr int64_t kPairBlock = 32, kPairSteps = 512;
// The number of pieces of a convolution's batch, and of chunks of the sums of its weights' gradient.
inline constexpr int64_t kConvPieces = 8, kConvChunks = 8;

// For a GPU's kernels: the number of blocks that share the sums of a weight's gradient. They are twice and eight times
// the 132 multiprocessors of the GPU that the sizes were measured on. They don't depend on the machine's own
// multiprocessors, because each block is a partial sum.
inline constexpr int64_t kWeightBlocks = 264, kDepthwiseBlocks = 1056;
// The rows of queries from which attention uses large blocks, which sum in another order.
inline constexpr int64_t kLargeAttention = 256 * 132;

}  // namespace lutra::numerics
