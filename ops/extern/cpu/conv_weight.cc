// The gradients of a convolution's weight and bias in one pass over image and map.
//
// Invariants:
// 1. The batch is cut into chunks, a function of sizes alone. In a chunk each element is one chain over (n, oh, ow);
//    the chunks are added in order. In float for the half types, rounded once.
// 2. So bits depend on neither layout, nor threads, nor instruction set.
#include "ops/extern/cpu/conv.h"

namespace lutra {
namespace {

// Chunks that the batch (or the lines of few images) is cut into, and what their sums may take of memory.
constexpr int64_t kChunks = 8, kPartialBytes = 64 << 20;
// Elements of a packed window that stay in the cache.
constexpr int64_t kWindow = 32768;

template <class T>
class Gradient {
 public:
  Gradient(const ExternCall& call, const ConvGeometry& g)
      : call_(call), g_(g), rows_(g.kh * g.kw * g.c), padded_(padded_to(g.k, micro_.width)) {
    panels_ = conv_panels(g.k, micro_.width, micro_.outer_rows);
    wide_ = (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1;
    const ExternView &map = call.in[0], &image = call.in[1];
    direct_image_ =
        lies_packed<T>(image) && g.ph == 0 && g.pw == 0 && (g.oh - 1) * g.sh + (g.kh - 1) * g.dh < g.h && wide_ <= g.w;
    direct_map_ = lies_packed<T>(map) && padded_ == g.k;
    // Blocks of lines, and chunks of blocks.
    block_ = std::clamp<int64_t>(kWindow / std::max<int64_t>(1, wide_ * g.c * g.sh), 1, std::max<int64_t>(g.oh, 1));
    if (g.batch < kChunks) block_ = std::min(block_, std::max<int64_t>(1, g.oh * g.batch / kChunks));
    blocks_ = (g.oh + block_ - 1) / block_;
    size_ = (rows_ + 1) * padded_;
    const int64_t most = std::max<int64_t>(1, kPartialBytes / std::max<int64_t>(1, (rows_ + 1) * g.k * g.groups * 8));
    chunks_ = std::clamp<int64_t>(g.batch * blocks_, 1, std::min(kChunks, most));
  }

  void run() {
    T* partial = conv_scratch<T>(kConvPartial, chunks_ * g_.groups * size_);
    conv_parallel(call_, chunks_ * g_.groups, [&](int64_t i) {
      T* sums = partial + i * size_;
      std::fill(sums, sums + size_, T(0));
      const int64_t chunk = i / g_.groups, units = g_.batch * blocks_;
      for (int64_t u = units * chunk / chunks_; u < units * (chunk + 1) / chunks_; u++) {
        const int64_t begin = u % blocks_ * block_;
        add_block(u / blocks_, i % g_.groups, begin, std::min(begin + block_, g_.oh), sums);
      }
    });
    for (int64_t c = 1; c < chunks_; c++) {
      const T* from = partial + c * g_.groups * size_;
      for (int64_t i = 0; i < g_.groups * size_; i++) partial[i] += from[i];
    }
    for (int64_t group = 0; group < g_.groups; group++) store(group, partial + group * size_);
  }

 private:
  void add_block(int64_t n, int64_t group, int64_t begin, int64_t end, T* sums) const {
    const ConvWindow map_window{call_.in[0], n, group * g_.k, g_.k, begin, end, 0, g_.ow};
    const ConvImage<T> map = packed_window<T>(map_window, direct_map_, padded_, kConvMap);
    const int64_t h0 = begin * g_.sh - g_.ph, h1 = (end - 1) * g_.sh - g_.ph + (g_.kh - 1) * g_.dh + 1;
    const ConvWindow window{call_.in[1], n, group * g_.c, g_.c, h0, h1, -g_.pw, wide_ - g_.pw};
    const ConvImage<T> image = packed_window<T>(window, direct_image_, g_.c, kConvImage);
    ConvOuter<T> outer{};
    outer.a_pixel = g_.sw * image.pixel, outer.a_line = g_.sh * image.line;
    outer.g_pixel = map.pixel, outer.g_line = map.line;
    outer.pixels = g_.ow, outer.lines = end - begin;
    outer.c_step = padded_;
    // Columns of taps that lie in a row are one run of rows.
    const bool joined = g_.dw * image.pixel == g_.c;
    const int64_t run = joined ? g_.kw * g_.c : g_.c;
    for (int64_t at = 0; at < rows_; at += run) {
      const int64_t tap = at / g_.c, kh = tap / g_.kw, kw = tap % g_.kw;
      add_rows(outer, image.data + kh * g_.dh * image.line + kw * g_.dw * image.pixel, run, map.data,
               sums + at * padded_);
    }
    for (const ConvPanel& panel : panels_) {
      outer.g = map.data + panel.at, outer.c = sums + rows_ * padded_ + panel.at;
      micro_.sum[panel.log](outer);
    }
  }

  void add_rows(ConvOuter<T>& outer, const T* a, int64_t rows, const T* map, T* sums) const {
    for (const ConvPanel& panel : panels_) {
      const int64_t pieces = (rows + micro_.outer_rows[panel.log] - 1) / micro_.outer_rows[panel.log];
      outer.g = map + panel.at;
      for (int64_t i = 0; i < pieces; i++) {
        const int64_t r = rows * i / pieces, end = rows * (i + 1) / pieces;
        outer.a = a + r, outer.c = sums + r * padded_ + panel.at;
        micro_.outer[panel.log][end - r](outer);
      }
    }
  }

  void store(int64_t group, const T* sums) const {
    const ExternView &weight = call_.out[0], &bias = call_.out[1];
    const int64_t* s = weight.strides;
    for (int64_t k = 0; k < g_.k; k++) {
      const int64_t at = (group * g_.k + k) * s[0];
      for (int64_t c = 0; c < g_.c; c++) {
        for (int64_t tap = 0; tap < g_.kh * g_.kw; tap++) {
          const int64_t to = at + c * s[1] + tap / g_.kw * s[2] + tap % g_.kw * s[3];
          conv_store(weight, to, sums[(tap * g_.c + c) * padded_ + k]);
        }
      }
      conv_store(bias, (group * g_.k + k) * bias.strides[0], sums[rows_ * padded_ + k]);
    }
  }

  const ExternCall& call_;
  const ConvGeometry g_;
  const ConvMicro<T>& micro_ = conv_micro<T>(call_.isa);
  std::vector<ConvPanel> panels_;
  int64_t rows_, padded_, wide_, block_, blocks_, size_, chunks_;
  bool direct_image_, direct_map_;
};

}  // namespace

// Attributes: the weight's sizes, then those of the convolution.
void run_convolution_weight(const ExternCall& call) {
  const ConvGeometry g = conv_geometry(call.in[1], call.out[0], call.in[0], call.ints.subspan(4));
  call.in[0].dtype == DType::kFloat64 ? Gradient<double>(call, g).run() : Gradient<float>(call, g).run();
}

}  // namespace lutra
