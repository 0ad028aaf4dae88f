// Shared parts of convolutions of bfloat16: images and weights as bfloat16 with channels innermost.
#pragma once
#include "ops/extern/cpu/conv.h"
#include "ops/extern/cpu/gemm_piece.h"

namespace lutra {

// Writes the map's pixels [begin, end), counted over the batch, as rows of their windows' elements (tap, channel). Rows
// are `row` apart and padded with zeros.
void conv_rows(const ConvGeometry& g, const ExternView& image, int64_t group, int64_t begin, int64_t end, uint16_t* to,
               int64_t row);
// to[j * to_row + i] = from[i * channel + j * pixel] for channels x pixels elements.
void turn_halves(const uint16_t* from, int64_t channel, int64_t channels, int64_t pixel, int64_t pixels, uint16_t* to,
                 int64_t to_row);
// Returns whether all pixels follow each other in memory, each a row of channels.
bool lies_by_pixels(const ExternView& v);
inline gemm::Matrix matrix(void* data, DType type, int64_t rows, int64_t cols, int64_t row, int64_t col) {
  return {static_cast<char*>(data), type, int64_t(size_of(type)), rows, cols, row, col};
}
// Calls f(n, first, last) for the parts of such pixels that belong to one image.
template <class F>
void for_images(int64_t pixels, int64_t begin, int64_t end, const F& f) {
  while (begin < end) {
    const int64_t n = begin / pixels, last = std::min(end, (n + 1) * pixels);
    f(n, begin - n * pixels, last - n * pixels);
    begin = last;
  }
}

// The most elements that conv_rows writes beyond the last row.
inline constexpr int64_t kRowsSlack = 8;

// Returns whether it is a convolution of bfloat16, other than one of many groups of few channels.
bool is_of_pairs(const ExternCall& call, const ConvGeometry& g);
// Such a convolution, and its gradient by an image for strides of one, which has the turned geometry.
void convolve_pairs(const ExternCall& call, const ConvGeometry& g);
void convolve_input_pairs(const ExternCall& call, const ConvGeometry& turned);
// Computes the gradients by weight and bias.
void convolve_weight_pairs(const ExternCall& call, const ConvGeometry& g);

}  // namespace lutra
