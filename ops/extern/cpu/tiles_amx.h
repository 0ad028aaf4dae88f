// Tiles of bfloat16: 16 lines of a block of 32 steps as one of the two operands, and sums of 16 x 16 float32. AMX
// multiplies them, or AVX-512's products of pairs (vdpbf16ps). Compiled for AMX and AVX-512 with bfloat16; cpu::has_amx
// and pays_in_dots say whether they may be called.
#pragma once
#include <cstdint>

namespace lutra::amx {

// Elements of a tile's side of lines, of a block of steps, and of a tile.
inline constexpr int64_t kLines = 16, kBlock = 32, kTile = kLines * kBlock;
// Lines of an operand that are multiplied at once, and elements of a row of their sums.
inline constexpr int64_t kPair = 2 * kLines;

// Whether this processor multiplies and adds a register of pairs as fast as it does a register of float32, and as two
// fused multiply-adds in order, the pair's upper half first. It is tried: AMD's do, Intel's take twice as long.
bool pays_in_dots();

// This thread's tiles are 16 rows of 64 bytes; and are given back, so that the system need not keep them.
void begin();
void end();

// How a tile holds its lines: one behind the other, or interleaved: a pair of steps of each. Of dots a pair holds two
// steps of one chain, the later one first: of steps 0 to 3 the pairs (2, 0) and (3, 1).
enum class Layout : uint8_t { kLines, kPairs, kDotLines, kDotPairs };
// Lines x steps elements, `line` and `step` apart, as tiles: the block of steps b of lines 16 p on at
// to + p * panel + b * kTile. Zeros fill up the last ones.
void pack(Layout layout, const uint16_t* from, int64_t line, int64_t step, int64_t lines, int64_t steps, uint16_t* to,
          int64_t panel);

// rows x columns tiles of sums (one or two of each) of `blocks` blocks, from zero on; rows of sums are `row` apart.
struct Multiply {
  const uint16_t* a;
  int64_t a_line, a_block, a_panel;  // from a line, a block and 16 lines to the next, in elements
  const uint16_t* b;
  int64_t b_panel;  // of packed pairs
  int64_t blocks;
  float* sums;
  int64_t row;
};
void multiply(int rows, int columns, const Multiply& m);
// The same for `lines` lines, of tiles of dots. Bits are those of AMX.
void multiply_dots(int64_t lines, int columns, const Multiply& m);

// rows x columns elements, of at most kPair columns. to += from: denormal sums are what the processor's mode says.
void add(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t rows, int64_t columns);
// Rounded, to elements in rows, or in columns of at most kPair rows that are `to_column` apart. `more` is added before,
// its rows kPair apart, unless it is null.
void store_rows(const float* from, int64_t from_row, const float* more, uint16_t* to, int64_t to_row, int64_t rows,
                int64_t columns);
void store_columns(const float* from, int64_t from_row, uint16_t* to, int64_t to_column, int64_t rows, int64_t columns);

}  // namespace lutra::amx
