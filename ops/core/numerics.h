// The numerics policy: every number that says in which order terms are summed, so that it fixes bits. It is a table by
// kind of device and depends on no machine: a sum has the same bits on every machine of a kind, at any number of
// threads. A number that only makes code fast is no part of it (jit/device/backend.h has those).
#pragma once
#include <cstdint>

namespace lutra::numerics {

// Grows with every change of a number below, or of the steps of a function or a product: results then have other bits
// than before. Caches of code have it in their keys.
inline constexpr int kVersion = 6;

// How one kind of device reduces.
struct Reductions {
  // Partial results along rows and down columns.
  int32_t row_lanes, column_lanes;
  // Partial results where what is reduced lies on both sides of what is kept (a norm's sums by channel), whichever of
  // them is innermost in memory. 0: as rows and columns.
  int32_t around_lanes;
  // Partial results of float32 (half types are summed so) are summed in blocks of so many terms, so that the relative
  // error of terms of one sign stays below 1e-6, however many there are.
  int32_t block;
  // Parts that a large reduction to at most `rows` values, or to a row of at most `columns` values, is cut into; to at
  // most `narrow` values into more. keeps_lanes: the parts of a column are joined in as many partial results as the
  // column has. deep: where the outermost dimension is short, the next one is cut too.
  int64_t chunks, column_chunks, narrow_chunks, rows, columns, narrow;
  bool keeps_lanes, deep;
};
// Few wide threads: lanes are registers of vectors, parts are for cores.
inline constexpr Reductions kCpuReductions = {32, 1, 0, 32, 64, 16, 16, 1, 64, 64, false, false};
// Many narrow threads: lanes are the threads of a group.
inline constexpr Reductions kGpuReductions = {1024, 32, 32, 32, 512, 64, 256, 256, 2048, 128, true, true};

// Elements from which a reduction to one value is cut, and of a row below which it is not.
inline constexpr int64_t kLargeReduction = 1 << 18, kShortRow = 256;
// Steps that each chunk of a reduction that is cut has at least, and terms of each of several rows.
inline constexpr int64_t kChunkSteps = 64, kRowSteps = 256;
// Of what is reduced around what is kept: outer steps from which it is cut by them, terms that a part has at least
// where it can be, terms from which it is cut further, and outer parts at most.
inline constexpr int64_t kAroundSteps = 8, kAroundTerms = 64, kAroundLong = 2048, kAroundParts = 2048;
// Taps of a pool's window that are summed as one expression; more are loops.
inline constexpr int64_t kUnrolledTaps = 32;

// Of a CPU's products: terms that one chain of fused multiply-adds takes; the sums of chains are added in order.
inline constexpr int64_t kProductSteps = 256;
// Of bfloat16: terms of a block, whose even and odd ones are a chain each; and terms whose blocks are added to one sum.
// The sums of so many are added in order.
inline constexpr int64_t kPairBlock = 32, kPairSteps = 512;
// Pieces of a convolution's batch, and chunks that the sums of its weights' gradient are cut into.
inline constexpr int64_t kConvPieces = 8, kConvChunks = 8;

// Of a GPU's kernels: blocks that the sums of a weight's gradient are shared by, twice and eight times the 132
// multiprocessors of the GPU that the sizes were measured on. Not the multiprocessors of the machine, as each block is
// a partial sum.
inline constexpr int64_t kWeightBlocks = 264, kDepthwiseBlocks = 1056;
// Rows of queries from which attention takes large blocks, whose order of sums is another one.
inline constexpr int64_t kLargeAttention = 256 * 132;

}  // namespace lutra::numerics
