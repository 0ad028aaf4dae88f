// Tiles of bfloat16: 16 lines of a block of 32 steps of an operand, and sums of 16 x 16 float32. AMX multiplies them,
// or AVX-512's products of pairs (vdpbf16ps). Compiled for AMX and AVX-512 with bfloat16. cpu::has_amx and pays_in_dots
// tell whether they may be called.
#pragma once
#include <cstdint>

namespace lutra::amx {

// The lines of a tile, the steps of a block, and the elements of a tile.
inline constexpr int64_t kLines = 16, kBlock = 32, kTile = kLines * kBlock;
// Lines of an operand that are multiplied at once. A row of their sums has as many elements.
inline constexpr int64_t kPair = 2 * kLines;

// Returns whether this processor multiplies and adds a register of pairs as fast as a register of float32, and with the
// result of two fused multiply-adds in order, the pair's upper half first. It tries this out: AMD's processors do;
// Intel's take twice as long.
bool pays_in_dots();

// begin configures this thread's tiles as 16 rows of 64 bytes. end releases them, so that the system need not save
// them.
void begin();
void end();

// How a tile stores its lines: one after the other, or interleaved by pairs of steps. For dots a pair has two steps of
// one chain, the later one first: steps 0 to 3 are the pairs (2, 0) and (3, 1).
enum class Layout : uint8_t { kLines, kPairs, kDotLines, kDotPairs };
// Packs lines x steps elements, `line` and `step` apart, as tiles. Block b of steps of the 16 lines from 16 p on goes
// to to + p * panel + b * kTile. Zeros pad the last ones.
void pack(Layout layout, const uint16_t* from, int64_t line, int64_t step, int64_t lines, int64_t steps, uint16_t* to,
          int64_t panel);

// Computes rows x columns tiles of sums (one or two of each) over `blocks` blocks, starting with zero. Rows of sums are
// `row` apart.
struct Multiply {
  const uint16_t* a;
  int64_t a_line, a_block, a_panel;  // elements from a line, a block and 16 lines to the next
  const uint16_t* b;
  int64_t b_panel;  // of packed pairs
  int64_t blocks;
  float* sums;
  int64_t row;
};
void multiply(int rows, int columns, const Multiply& m);
// Does the same for `lines` lines, with tiles of dots. The bits are those of AMX.
void multiply_dots(int64_t lines, int columns, const Multiply& m);

// to += from for rows x columns elements, with at most kPair columns. The processor's mode decides about denormal sums.
void add(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t rows, int64_t columns);
// Round and store elements in rows, or in columns that have at most kPair rows and are `to_column` apart. `more`, whose
// rows are kPair apart, is added first unless it is null.
void store_rows(const float* from, int64_t from_row, const float* more, uint16_t* to, int64_t to_row, int64_t rows,
                int64_t columns);
void store_columns(const float* from, int64_t from_row, uint16_t* to, int64_t to_column, int64_t rows, int64_t columns);

}  // namespace lutra::amx
