// Shared parts of the three kernels of convolutions: the geometry of a call, packed images and weights.
#pragma once
#include <algorithm>
#include <vector>

#include "ops/core/error.h"
#include "ops/extern/cpu/conv_micro.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/scratch.h"

namespace lutra {

// One convolution of image (N, G*C, H, W) with weight (G*K, C, KH, KW) into map (N, G*K, OH, OW).
struct ConvGeometry {
  int64_t batch, groups, c, k, h, w, oh, ow, kh, kw;
  int64_t sh, sw, ph, pw, dh, dw;  // strides, padding before the first row and column, dilations
};

// Reads the attributes from ints[0] on: stride {h, w}, padding {top, left, bottom, right}, dilation {h, w}, groups.
ConvGeometry conv_geometry(const ExternView& image, const ExternView& weight, const ExternView& map,
                           std::span<const int64_t> ints);

// An image with channels innermost: element (line, pixel, channel) is data[line * this->line + pixel * this->pixel +
// channel].
template <class T>
struct ConvImage {
  T* data;
  int64_t pixel, line;
};

// A window of an image with channels [c0, c0 + c) and strides {n, c, h, w}.
struct ConvWindow {
  const ExternView& view;
  int64_t n, c0, c;
  int64_t h0, h1, w0, w1;  // rows and columns; elements outside the image are zero
};
// Returns rows [begin, end) of the map.
inline ConvWindow map_window(const ExternView& map, const ConvGeometry& g, int64_t n, int64_t c0, int64_t c,
                             int64_t begin, int64_t end) {
  return {map, n, c0, c, begin, end, 0, g.ow};
}
// Returns the rows of the image from which rows [begin, end) of the map are computed, `wide` columns with the padding.
inline ConvWindow image_window(const ExternView& image, const ConvGeometry& g, int64_t n, int64_t c0, int64_t c,
                               int64_t begin, int64_t end, int64_t wide) {
  const int64_t h0 = begin * g.sh - g.ph, h1 = (end - 1) * g.sh - g.ph + (g.kh - 1) * g.dh + 1;
  return {image, n, c0, c, h0, h1, -g.pw, wide - g.pw};
}
// Returns whether the view's elements are T.
template <class T>
bool is_of(const ExternView& v);
// Returns whether windows of such a view can be read in place.
template <class T>
bool lies_packed(const ExternView& v);
// Packs the window: each pixel's channels in a row, padded with zeros to c_padded.
template <class T>
void pack_image(const ConvMicro<T>& micro, const ConvWindow& window, int64_t c_padded, T* to);
// Does the same, or returns the window in place if `direct` says that it has that layout.
template <class T>
ConvImage<T> packed_window(const ConvMicro<T>& micro, const ConvWindow& window, bool direct, int64_t c_padded,
                           Scratch slot);
// Unpacks: writes pixels of `from` into rows [h0, h1) of channels [c0, c0 + c) of v.
template <class T>
void unpack_image(const ConvMicro<T>& micro, const ConvImage<T>& from, const ExternView& v, int64_t n, int64_t c0,
                  int64_t c, int64_t h0, int64_t h1);

// Loads one element of a view of any dtype.
template <class T>
T conv_load(const ExternView& v, int64_t at);
// Stores n values from element `at` on, `stride` apart.
template <class T>
void conv_store(const ExternView& v, int64_t at, int64_t stride, const T* values, int64_t n);

// A panel of columns: 4, 2 or 1 vectors wide. Panels follow one another.
struct ConvPanel {
  int log;          // log2 of its vectors
  int64_t at;       // first column
  int64_t columns;  // vectors * width
};
std::vector<ConvPanel> conv_panels(int64_t columns, int width, const int* most_rows);
inline int64_t padded_to(int64_t n, int64_t width) { return (n + width - 1) / width * width; }

// The weights of one group as a matrix in panels of columns, with a row for each tap and inner channel.
struct ConvWeights {
  const ExternView& view;  // the strides of kh and kw are its last two
  int64_t offset, kh, kw;
  bool flip;  // reverses the order of taps
  int64_t inner, inner_stride, columns, column_stride;
};
// The weights of a group, for the forward and for the gradient of the image. The gradient reverses the taps and
// exchanges channels and maps.
inline ConvWeights forward_weights(const ExternView& w, const ConvGeometry& g, int64_t group) {
  return {w, group * g.k * w.strides[0], g.kh, g.kw, false, g.c, w.strides[1], g.k, w.strides[0]};
}
inline ConvWeights turned_weights(const ExternView& w, const ConvGeometry& turned, int64_t group) {
  const ConvGeometry& t = turned;
  return {w, group * t.c * w.strides[0], t.kh, t.kw, true, t.c, w.strides[0], t.k, w.strides[1]};
}
// Packs one panel of them. `to` is the start of the group's panels.
template <class T>
void pack_weights(const ConvMicro<T>& micro, const ConvWeights& weights, const ConvPanel& panel, T* to);

// Convolutions with as many groups as channels, and their gradients.
bool is_depthwise(const ConvGeometry& g);
template <class T>
void depthwise(const ExternCall& call, const ConvGeometry& g);
template <class T>
void depthwise_input(const ExternCall& call, const ConvGeometry& g);
template <class T>
void depthwise_weight(const ExternCall& call, const ConvGeometry& g);

// Rows of the weights in one pass, so that a panel of them stays in the cache.
inline constexpr int64_t kConvPassRows = 512;
struct ConvRange {
  int64_t begin, end;
};
// Returns whether lines of the map have too few pixels for a tile.
bool is_small_map(const ConvGeometry& g);
// Returns whether a convolution is faster as one product. call.in[0] is g's image.
template <class T>
bool is_flat(const ExternCall& call, const ConvGeometry& g);
template <class T>
void convolve_flat(const ExternCall& call, const ConvGeometry& g);
// The gradient by an image for strides of one. It is a convolution of the map with the turned geometry.
ConvGeometry turned_geometry(const ConvGeometry& g);
template <class T>
void convolve_input_flat(const ExternCall& call, const ConvGeometry& turned);
// Writes the windows of the pixels of the lines, one after the other. Each has the given rows (tap, channel).
template <class T>
void conv_windows(const ConvMicro<T>& micro, const ConvGeometry& g, const ExternView& image, int64_t n, int64_t group,
                  ConvRange lines, ConvRange rows, T* to);

// Runs body(item) for each of n items on the threads of the call.
template <class F>
void conv_parallel(const ExternCall& call, int64_t n, const F& body) {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) body(i);
  };
  if (n <= 1 || !call.parallel) return range(0, n);
  call.parallel(n, 1, range);
}

}  // namespace lutra
