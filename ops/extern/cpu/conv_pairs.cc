// Convolutions of bfloat16 as products (gemm.cc): the windows of pixels are rows of one matrix, the weights are the
// other.
//
// Invariants:
// 1. An element is the product's sum over (kh, kw, c) in that order, or over (kh, kw, k) with taps from the last to the
//    first for the image's gradient. Then its bias is added. It is rounded once. Denormal numbers are zeros.
// 2. So bits don't depend on layout, partition, threads or instruction set.
#include "ops/extern/cpu/conv_pairs.h"

#include <cfloat>
#include <cmath>
#include <cstring>

#include "ops/core/cpu.h"
#include "ops/core/half.h"
#include "ops/core/interrupt.h"

namespace lutra {
namespace {

using gemm::Matrix;

// Bytes of windows that stay in the second cache; pieces of the pixels; pixels between two checks for a stop.
constexpr int64_t kWindows = 640 << 10, kPieces = 8, kPixels = 1 << 13;
// The least rows of a piece. As many columns of weights are packed together.
constexpr int64_t kUnit = 32;
// The least channels of a group, of image and map, that fill a tile.
constexpr int64_t kGroup = 16;

constexpr int64_t kLanes = kRowsSlack;
using Lanes = uint16_t __attribute__((vector_size(2 * kLanes)));

// to[j * to_row + i] = from[i * from_row + j] for 8 x 8 elements: each round rotates the six bits of their places by
// one.
inline void turn_square(const uint16_t* from, int64_t from_row, uint16_t* to, int64_t to_row) {
  Lanes v[kLanes], w[kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i++) std::memcpy(&v[i], from + i * from_row, sizeof(Lanes));
#pragma GCC unroll 3
  for (int round = 0; round < 3; round++) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      w[2 * i] = __builtin_shufflevector(v[i], v[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kLanes; i++) v[i] = w[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i++) std::memcpy(to + i * to_row, &v[i], sizeof(Lanes));
}

}  // namespace

void turn_halves(const uint16_t* from, int64_t channel, int64_t channels, int64_t pixel, int64_t pixels, uint16_t* to,
                 int64_t to_row) {
  const auto rest = [&](int64_t c, int64_t c_end, int64_t p, int64_t p_end) {
    for (int64_t j = p; j < p_end; j++) {
      for (int64_t i = c; i < c_end; i++) to[j * to_row + i] = from[i * channel + j * pixel];
    }
  };
  if (channel == 1 && pixel == channels && to_row == channels) {
    std::memcpy(to, from, size_t(channels * pixels) * sizeof(uint16_t));
  } else if (channel == 1) {
    for (int64_t j = 0; j < pixels; j++) {
      std::memcpy(to + j * to_row, from + j * pixel, size_t(channels) * sizeof(uint16_t));
    }
  } else if (pixel == 1) {
    const int64_t c_end = channels / kLanes * kLanes, p_end = pixels / kLanes * kLanes;
    for (int64_t j = 0; j < p_end; j += kLanes) {
      for (int64_t i = 0; i < c_end; i += kLanes) {
        turn_square(from + i * channel + j, channel, to + j * to_row + i, to_row);
      }
    }
    rest(c_end, channels, 0, p_end);
    rest(0, channels, p_end, pixels);
  } else {
    rest(0, channels, 0, pixels);
  }
}

bool lies_by_pixels(const ExternView& v) {
  return (v.strides[1] == 1 || v.sizes[1] == 1) && (v.sizes[2] == 1 || v.strides[2] == v.sizes[3] * v.strides[3]) &&
         (v.sizes[0] == 1 || v.strides[0] == v.sizes[2] * v.sizes[3] * v.strides[3]);
}

namespace {

// Copies n elements. If that is faster than a call, it also copies up to kLanes - 1 elements behind them.
inline void copy_run(const uint16_t* from, uint16_t* to, int64_t n) {
  if (n > 8 * kLanes) {
    std::memcpy(to, from, size_t(n) * sizeof(uint16_t));
    return;
  }
  for (int64_t i = 0; i < n; i += kLanes) {
    Lanes v;
    std::memcpy(&v, from + i, sizeof v);
    std::memcpy(to + i, &v, sizeof v);
  }
}

const uint16_t* halves_of(const ExternView& v) { return static_cast<const uint16_t*>(v.data); }

// Packs the window: each pixel's channels in a row.
void pack_window(const ConvWindow& x, uint16_t* to) {
  const int64_t columns = x.w1 - x.w0, left = std::clamp<int64_t>(-x.w0, 0, columns);
  const int64_t inside = std::clamp<int64_t>(std::min(x.w1, x.view.sizes[3]) - (x.w0 + left), 0, columns - left);
  const int64_t *s = x.view.strides, line = columns * x.c;
  const uint16_t* data = halves_of(x.view) + x.n * s[0] + x.c0 * s[1];
  for (int64_t h = x.h0; h < x.h1; h++, to += line) {
    const bool empty = h < 0 || h >= x.view.sizes[2] || inside == 0;
    const int64_t first = empty ? columns : left, end = empty ? columns : left + inside;
    std::fill(to, to + first * x.c, uint16_t(0));
    for (int64_t at = first; at < end; at += kPixels) {
      look_in_loop();
      turn_halves(data + h * s[2] + (x.w0 + at) * s[3], x.c == 1 ? 1 : s[1], x.c, s[3], std::min(kPixels, end - at),
                  to + at * x.c, x.c);
    }
    std::fill(to + end * x.c, to + line, uint16_t(0));
  }
}

// Packs weights as rows of columns: to[j * row + tap * inner + i], padded with zeros.
void pack_columns(const ConvWeights& x, int64_t begin, int64_t end, uint16_t* to, int64_t row) {
  const int64_t taps = x.kh * x.kw, *s = x.view.strides;
  const uint16_t* data = halves_of(x.view) + x.offset;
  // A run is a line of taps, or all taps if they are contiguous.
  const int64_t run = x.kh == 1 || s[2] == x.kw * s[3] ? taps : x.kw;
  const bool across = x.column_stride == 1 && x.inner_stride != 1;  // columns have unit stride
  for (int64_t tap = 0; across && tap < taps; tap++) {
    const uint16_t* from = data + begin + tap / x.kw * s[2] + tap % x.kw * s[3];
    uint16_t* first = to + begin * row + (x.flip ? taps - 1 - tap : tap) * x.inner;
    look_in_loop();
    turn_halves(from, x.inner_stride, x.inner, 1, end - begin, first, row);
  }
  for (int64_t j = begin; j < end; j++) {
    uint16_t* column = to + j * row;
    look_in_loop();
    for (int64_t tap = 0; !across && tap < taps; tap += run) {
      const uint16_t* from = data + j * x.column_stride + tap / x.kw * s[2];
      const int64_t first = x.flip ? taps - 1 - tap : tap;
      turn_halves(from, x.inner_stride, x.inner, s[3], run, column + first * x.inner, x.flip ? -x.inner : x.inner);
    }
    std::fill(column + taps * x.inner, column + row, uint16_t(0));
  }
}

float flushed(float v) { return std::fabs(v) < FLT_MIN ? std::copysign(0.0f, v) : v; }

class Product {
 public:
  Product(const ExternCall& call, const ConvGeometry& g)
      : call_(call),
        g_(g),
        steps_(g.kh * g.kw * g.c),
        row_(padded_to(steps_, numerics::kPairBlock)),
        pixels_(g.oh * g.ow),
        all_(g.batch * pixels_),
        wide_(padded_to(g.k, kUnit)),
        engine_(gemm::pair_engine(call.isa)),
        tiles_(engine_ != gemm::PairEngine::kRegisters) {
    // Pads rows of windows, if needed, so that they don't all fall into the same set of the first cache.
    window_row_ = row_ % 512 == 0 ? row_ + kUnit : row_;
    const ExternView &image = call.in[0], &out = call.out[0];
    const bool pointwise = g.kh * g.kw * g.sh * g.sw == 1 && g.ph == 0 && g.pw == 0 && g.oh == g.h && g.ow == g.w;
    direct_in_ = pointwise && lies_by_pixels(image);
    direct_out_ = lies_by_pixels(out);
  }

  // weights(group) returns the weights of a group. The bias may be null.
  template <class F>
  void run(const F& weights, const ExternView* bias) {
    pack_weights(weights);
    has_bias_ = bias && bias->data;
    bias_.assign(size_t(has_bias_ ? g_.groups * g_.k : 0), 0);
    for (size_t i = 0; i < bias_.size(); i++) {
      bias_[i] = flushed(conv_load<float>(*bias, int64_t(i) * bias->strides[0]));
    }
    int64_t strip = std::clamp(kWindows / 2 / window_row_, kUnit, std::max(all_, kUnit));
    if (call_.threads > 1) strip = std::min(strip, all_ * g_.groups / kPieces);
    strip = std::max(strip / kUnit, int64_t(1)) * kUnit;
    const int64_t strips = (all_ + strip - 1) / strip;
    conv_parallel(call_, strips * g_.groups, [&](int64_t i) {
      const int64_t begin = i / g_.groups * strip;
      run_strip(i % g_.groups, begin, std::min(begin + strip, all_));
    });
  }

 private:
  template <class F>
  void pack_weights(const F& weights) {
    weights_ = scratch<uint16_t>(Scratch::kConvWeight, g_.groups * wide_ * row_, "convolution");
    packed_ = tiles_ ? scratch<uint16_t>(Scratch::kConvPartial, g_.groups * wide_ * row_, "convolution") : nullptr;
    const int64_t blocks = wide_ / kUnit;
    conv_parallel(call_, g_.groups * blocks, [&](int64_t i) {
      const int64_t group = i / blocks, begin = i % blocks * kUnit, end = std::min(begin + kUnit, g_.k);
      pack_columns(weights(group), begin, end, weights_ + group * wide_ * row_, row_);
      if constexpr (cpu::kX64) {
        const Matrix b = columns_of(group, row_).part(0, begin, row_, end - begin);
        if (tiles_) gemm::pack_tile_columns(engine_, b, packed_ + i * kUnit * row_);
      }
    });
  }

  Matrix columns_of(int64_t group, int64_t steps) const {
    return matrix(weights_ + group * wide_ * row_, DType::kBFloat16, steps, g_.k, 1, row_);
  }
  // Returns pixels that follow each other in memory as a matrix.
  static Matrix pixels_of(const ExternView& v, int64_t offset, int64_t rows, int64_t channels) {
    auto* data = static_cast<uint16_t*>(v.data) + offset;
    return matrix(data, v.dtype, rows, channels, v.strides[3], v.sizes[1] == 1 ? 1 : v.strides[1]);
  }

  Matrix windows(int64_t group, int64_t begin, int64_t end) const {
    const ExternView& image = call_.in[0];
    const int64_t n = end - begin;
    if (direct_in_) return pixels_of(image, begin * image.strides[3] + group * g_.c * image.strides[1], n, g_.c);
    auto* rows = scratch<uint16_t>(Scratch::kConvRows, n * window_row_ + kRowsSlack, "convolution");
    conv_rows(g_, image, group, begin, end, rows, window_row_);
    return matrix(rows, DType::kBFloat16, n, row_, window_row_, 1);
  }

  void run_strip(int64_t group, int64_t begin, int64_t end) const {
    const ExternView& out = call_.out[0];
    const Matrix a = windows(group, begin, end), b = columns_of(group, a.cols);
    const uint16_t* packed = packed_ ? packed_ + group * wide_ * row_ : nullptr;
    const gemm::Tiles tiles(engine_);
    if (direct_out_ && !has_bias_) {
      const Matrix c = pixels_of(out, begin * out.strides[3] + group * g_.k * out.strides[1], end - begin, g_.k);
      return gemm::run_pair_piece(call_.isa, engine_, a, b, c, packed);
    }
    if (out.strides[3] == 1 && !has_bias_) {
      auto* rounded = scratch<uint16_t>(Scratch::kConvMap, (end - begin) * wide_, "convolution");
      gemm::run_pair_piece(call_.isa, engine_, a, b, matrix(rounded, DType::kBFloat16, end - begin, g_.k, wide_, 1),
                           packed);
      return store(group, begin, end, [&](int64_t at, int64_t n) {
        look_in_loop();
        turn_halves(rounded, wide_, n, 1, g_.k, static_cast<uint16_t*>(out.data) + at, out.strides[1]);
        rounded += n * wide_;
      });
    }
    auto* sums = scratch<float>(Scratch::kConvMap, (end - begin) * wide_, "convolution");
    const Matrix c = matrix(sums, DType::kFloat32, end - begin, g_.k, wide_, 1);
    gemm::run_pair_piece(call_.isa, engine_, a, b, c, packed);
    if (has_bias_) {
      for (int64_t r = 0; r < end - begin; r++) add_bias(bias_.data() + group * g_.k, sums + r * wide_);
    }
    store(group, begin, end, [&](int64_t at, int64_t n) {
      gemm::copy_out(micro_, sums, wide_, pixels_of(out, at, n, g_.k));
      sums += n * wide_;
    });
  }

  void add_bias(const float* bias, float* sums) const {
    for (int64_t k = 0; k < g_.k; k++) sums[k] = flushed(sums[k] + bias[k]);
  }

  // Calls to(at, n) for each run of n contiguous pixels, from element `at` on.
  template <class F>
  void store(int64_t group, int64_t begin, int64_t end, const F& to) const {
    const ExternView& out = call_.out[0];
    const int64_t* s = out.strides;
    const int64_t length = g_.oh == 1 || s[2] == g_.ow * s[3] ? pixels_ : g_.ow;  // of contiguous pixels
    for_images(length, begin, end, [&](int64_t part, int64_t first, int64_t last) {
      const int64_t n = part * length / pixels_, line = part * length % pixels_ / g_.ow;
      const int64_t at = n * s[0] + group * g_.k * s[1] + line * s[2] + first * s[3];
      to(at, last - first);
    });
  }

  const ExternCall& call_;
  const ConvGeometry g_;
  const ConvMicro<float>& micro_ = conv_micro<float>(call_.isa);
  const int64_t steps_, row_, pixels_, all_, wide_;  // row_: steps, padded to whole blocks; wide_: columns likewise
  const gemm::PairEngine engine_;
  const bool tiles_;
  int64_t window_row_;
  bool direct_in_, direct_out_, has_bias_ = false;
  std::vector<float> bias_;
  uint16_t *weights_ = nullptr, *packed_ = nullptr;
};

}  // namespace

void conv_rows(const ConvGeometry& g, const ExternView& image, int64_t group, int64_t begin, int64_t end, uint16_t* to,
               int64_t row) {
  const int64_t wide = (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1, line = wide * g.c;
  const int64_t joined = g.dw == 1 ? g.kw * g.c : g.c;
  for_images(g.oh * g.ow, begin, end, [&](int64_t n, int64_t first, int64_t last) {
    const int64_t top = first / g.ow, h0 = top * g.sh - g.ph;
    const int64_t h1 = (last - 1) / g.ow * g.sh - g.ph + (g.kh - 1) * g.dh + 1;
    auto* packed = scratch<uint16_t>(Scratch::kConvImage, (h1 - h0) * line + kLanes, "convolution");
    pack_window({image, n, group * g.c, g.c, h0, h1, -g.pw, wide - g.pw}, packed);
    int64_t x = first % g.ow, y = 0;  // y: lines below the first one
    for (int64_t p = first; p < last; p++, to += row) {
      if (p % 256 == 0) look_in_loop();
      const uint16_t* from = packed + y * g.sh * line + x * g.sw * g.c;
      if (++x == g.ow) x = 0, y++;
      uint16_t* place = to;
      for (int64_t kh = 0; kh < g.kh; kh++, from += g.dh * line) {
        for (int64_t at = 0; at < g.kw * g.c; at += joined, place += joined) {
          copy_run(from + at * g.dw, place, joined);
        }
      }
      std::fill(place, to + row, uint16_t(0));
    }
  });
}

bool is_of_pairs(const ExternCall& call, const ConvGeometry& g) {
  return is_bfloat16(call.out[0].dtype) && (g.groups == 1 || std::min(g.c, g.k) >= kGroup);
}

void convolve_pairs(const ExternCall& call, const ConvGeometry& g) {
  const auto weights = [&](int64_t group) { return forward_weights(call.in[1], g, group); };
  Product(call, g).run(weights, &call.in[2]);
}

void convolve_input_pairs(const ExternCall& call, const ConvGeometry& turned) {
  const auto weights = [&](int64_t group) { return turned_weights(call.in[1], turned, group); };
  Product(call, turned).run(weights, nullptr);
}

}  // namespace lutra
