// The gradients of weight and bias of a convolution of bfloat16, as products (gemm.cc): the map's channels are rows of
// one matrix, windows are columns of the other, and the batch's pixels are the steps.
//
// Invariants:
// 1. The pixels are cut into blocks of numerics::kPairSteps, and the blocks into chunks, a function of sizes alone. A
//    block is a product's sum. Blocks are added in order, and so are chunks. The result is rounded once. Denormal
//    numbers are zeros. The bias is the weight of a channel of ones.
// 2. So bits don't depend on layout, partition, threads or instruction set.
#include <cfloat>
#include <cmath>
#include <cstring>

#include "ops/core/cpu.h"
#include "ops/core/half.h"
#include "ops/core/interrupt.h"
#include "ops/extern/cpu/conv_pairs.h"

namespace lutra {
namespace {

using gemm::Matrix;

constexpr int64_t kBlock = numerics::kPairSteps, kChunks = numerics::kConvChunks;
// The most memory for chunks; the pieces of work; the rows of a piece.
constexpr int64_t kPartialBytes = 64 << 20, kPieces = 8, kUnit = 32;
// Elements from a channel of the map to the next, so that they don't all fall into the same set of the first cache.
constexpr int64_t kMapRow = kBlock + kUnit;

class Gradient {
 public:
  Gradient(const ExternCall& call, const ConvGeometry& g)
      : call_(call),
        g_(g),
        has_bias_(call.out[1].sizes[0] > 0),
        steps_(g.kh * g.kw * g.c),
        row_(steps_ + (has_bias_ ? 1 : 0)),
        pixels_(g.oh * g.ow),
        all_(g.batch * pixels_),
        blocks_((all_ + kBlock - 1) / kBlock),
        size_(g.k * row_),
        direct_map_(lies_by_pixels(call.in[0])) {
    const int64_t bytes = std::max<int64_t>(g.groups * size_ * int64_t(sizeof(float)), 1);
    chunks_ = std::clamp<int64_t>(std::min(blocks_, kPartialBytes / bytes), 1, kChunks);
  }

  void run() {
    sums_ = scratch<float>(Scratch::kConvPartial, chunks_ * g_.groups * size_, "convolution");
    const int64_t items = chunks_ * g_.groups, units = (g_.k + kUnit - 1) / kUnit;
    const int64_t parts = call_.threads > 1 ? std::clamp<int64_t>(kPieces / items, 1, units) : 1;
    conv_parallel(call_, items * parts, [&](int64_t i) {
      const int64_t part = i % parts, item = i / parts;
      const int64_t first = gemm::cut(g_.k, kUnit, parts, part), end = gemm::cut(g_.k, kUnit, parts, part + 1);
      if (first < end) accumulate(item / g_.groups, item % g_.groups, first, end, sums_ + item * size_);
    });
    conv_parallel(call_, g_.groups * units, [&](int64_t i) {
      const int64_t group = i / units, first = i % units * kUnit;
      for (int64_t k = first; k < std::min(first + kUnit, g_.k); k++) store(group, k);
    });
  }

 private:
  // Computes the sums of rows [first, end) of a chunk.
  void accumulate(int64_t chunk, int64_t group, int64_t first, int64_t end, float* sums) const {
    const int64_t begin = blocks_ * chunk / chunks_, last = blocks_ * (chunk + 1) / chunks_, rows = end - first;
    sums += first * row_;
    if (begin == last) std::fill(sums, sums + rows * row_, 0.0f);
    auto* windows = scratch<uint16_t>(Scratch::kConvRows, kBlock * row_ + kRowsSlack, "convolution");
    auto* more = scratch<float>(Scratch::kConvWeight, rows * row_, "convolution");
    const gemm::PairEngine engine = gemm::pair_engine(call_.isa);
    const gemm::Tiles tiles(engine);
    for (int64_t block = begin; block < last; block++) {
      look_in_loop();
      const int64_t from = block * kBlock, to = std::min(from + kBlock, all_);
      conv_rows(g_, call_.in[1], group, from, to, windows, row_);
      for (int64_t p = 0; has_bias_ && p < to - from; p++) windows[p * row_ + steps_] = float_to_bfloat16(1);
      const Matrix b = matrix(windows, DType::kBFloat16, to - from, row_, row_, 1);
      const Matrix c = matrix(block == begin ? sums : more, DType::kFloat32, rows, row_, row_, 1);
      gemm::run_pair_piece(call_.isa, engine, map_rows(group * g_.k + first, rows, from, to), b, c, nullptr);
      if (block > begin) add(more, sums, rows * row_);
    }
  }

  // Returns channels [first, first + rows) of the map as rows of pixels [begin, end).
  Matrix map_rows(int64_t first, int64_t rows, int64_t begin, int64_t end) const {
    const ExternView& map = call_.in[0];
    const int64_t* s = map.strides;
    auto* data = static_cast<uint16_t*>(map.data) + first * s[1];
    if (direct_map_) {
      return matrix(data + begin * s[3], DType::kBFloat16, rows, end - begin, map.sizes[1] == 1 ? 1 : s[1], s[3]);
    }
    auto* to = scratch<uint16_t>(Scratch::kConvMap, rows * kMapRow, "convolution");
    const int64_t length = g_.oh == 1 || s[2] == g_.ow * s[3] ? pixels_ : g_.ow;  // of contiguous pixels
    int64_t at = 0;
    for_images(length, begin, end, [&](int64_t part, int64_t from, int64_t last) {
      const int64_t n = part * length / pixels_, line = part * length % pixels_ / g_.ow;
      const uint16_t* pixel = data + n * s[0] + line * s[2] + from * s[3];
      // turn_halves takes a channel's row of pixels; here it gets a pixel's row of channels.
      turn_halves(pixel, s[3], last - from, s[1], rows, to + at, kMapRow);
      at += last - from;
    });
    return matrix(to, DType::kBFloat16, rows, end - begin, kMapRow, 1);
  }

  // Adds, with denormal sums as zeros.
  void add(const float* from, float* to, int64_t n) const {
    const bool by_mode = call_.isa != ExternIsa::kBase;
    const cpu::FlushDenormals mode(by_mode);
    if (by_mode) {
      for (int64_t i = 0; i < n; i++) to[i] += from[i];
      return;
    }
    for (int64_t i = 0; i < n; i++) {
      const float v = to[i] + from[i];
      to[i] = std::fabs(v) < FLT_MIN ? std::copysign(0.0f, v) : v;
    }
  }

  // Stores the row of channel k.
  void store(int64_t group, int64_t k) const {
    look_in_loop();
    float* row = sums_ + group * size_ + k * row_;
    for (int64_t chunk = 1; chunk < chunks_; chunk++) add(row + chunk * g_.groups * size_, row, row_);
    const ExternView &weight = call_.out[0], &bias = call_.out[1];
    const int64_t *s = weight.strides, taps = g_.kh * g_.kw, column = group * g_.k + k;
    if (has_bias_) conv_store(bias, column * bias.strides[0], 1, row + steps_, 1);
    auto* to = static_cast<uint16_t*>(weight.data) + column * s[0];
    if (s[3] == 1 && s[2] == g_.kw && s[1] == taps) {
      auto* halves = scratch<uint16_t>(Scratch::kConvRows, steps_, "convolution");
      narrow_row(DType::kBFloat16, row, halves, 1, steps_);
      return turn_halves(halves, g_.c, taps, 1, g_.c, to, taps);
    }
    for (int64_t tap = 0; tap < taps; tap++) {
      narrow_row(DType::kBFloat16, row + tap * g_.c, to + tap / g_.kw * s[2] + tap % g_.kw * s[3], s[1], g_.c);
    }
  }

  const ExternCall& call_;
  const ConvGeometry g_;
  const bool has_bias_;
  const int64_t steps_, row_, pixels_, all_, blocks_, size_;  // row_: steps and the bias
  const bool direct_map_;
  int64_t chunks_;
  float* sums_ = nullptr;
};

}  // namespace

void convolve_weight_pairs(const ExternCall& call, const ConvGeometry& g) { Gradient(call, g).run(); }

}  // namespace lutra
