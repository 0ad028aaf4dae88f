// The gradients of a convolution's weight and bias in one pass over image and map.
//
// Invariants:
// 1. The batch is cut into chunks, a function of sizes alone. In a chunk each element is one chain over (n, oh, ow).
//    The chunks are added in order. How rows are divided among threads does not matter. Half types are computed in
//    float and rounded once.
// 2. Bfloat16 has the sums of conv_pairs_weight.cc, unless there are many groups of few channels.
// 3. So bits don't depend on layout, threads or instruction set.
#include "ops/core/interrupt.h"
#include "ops/core/numerics.h"
#include "ops/extern/cpu/conv_pairs.h"

namespace lutra {
namespace {

// Chunks of the batch (or of the lines of few images), and the most memory for their sums.
constexpr int64_t kChunks = numerics::kConvChunks, kPartialBytes = 64 << 20;
// The least pixels of a chunk, because its sums are read and written once more.
constexpr int64_t kChunkPixels = 512;
// Elements of a packed window that stay in the cache.
constexpr int64_t kWindow = 32768;
// Elements of the windows of several small maps.
constexpr int64_t kFlat = 1 << 18;
// Elements of window and map that stay in the first cache, and the pixels that pay for reading and writing sums once
// more.
constexpr int64_t kStrip = 8192, kStripPixels = 96;
// Columns that are stored together.
constexpr int64_t kBlock = 16;

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
    const int64_t most = std::max<int64_t>(1, kPartialBytes / std::max<int64_t>(1, (rows_ + 1) * g.k * g.groups * 8));
    const int64_t worth = g.batch * g.oh * g.ow / kChunkPixels;
    chunks_ = std::clamp<int64_t>(std::min(g.batch * blocks_, worth), 1, std::min(kChunks, most));
    parts_ =
        std::clamp<int64_t>(kChunks / std::max<int64_t>(chunks_ * g.groups, 1), 1, std::max<int64_t>(1, rows_ / 32));
    size_ = (rows_ + 1) * padded_;
  }

  void run() {
    T* partial = scratch<T>(Scratch::kConvPartial, chunks_ * g_.groups * size_, "convolution");
    conv_parallel(call_, chunks_ * g_.groups * parts_, [&](int64_t i) {
      const int64_t part = i % parts_, group = i / parts_ % g_.groups, chunk = i / parts_ / g_.groups;
      accumulate(chunk, group, first_row(part), first_row(part + 1), partial + (chunk * g_.groups + group) * size_);
    });
    const int64_t blocks = (g_.k + kBlock - 1) / kBlock, pieces = std::min(kChunks, blocks);
    conv_parallel(call_, g_.groups * pieces, [&](int64_t i) {
      const int64_t piece = i % pieces, last = std::min(g_.k, blocks * (piece + 1) / pieces * kBlock);
      store(i / pieces, blocks * piece / pieces * kBlock, last, partial + i / pieces * size_);
    });
  }

 private:
  // Returns the first row of a part. The last part also has the bias's row.
  int64_t first_row(int64_t part) const { return part == parts_ ? rows_ + 1 : rows_ * part / parts_; }

  void accumulate(int64_t chunk, int64_t group, int64_t row, int64_t end, T* sums) const {
    std::fill(sums + row * padded_, sums + end * padded_, T(0));
    const int64_t units = g_.batch * blocks_;
    if (is_small_map(g_))
      return add_flat(units * chunk / chunks_, units * (chunk + 1) / chunks_, group, row, end, sums);
    for (int64_t u = units * chunk / chunks_; u < units * (chunk + 1) / chunks_; u++) {
      const int64_t begin = u % blocks_ * block_;
      look_in_loop();
      add_block(u / blocks_, group, begin, std::min(begin + block_, g_.oh), row, end, sums);
    }
  }

  // Adds blocks [unit, last) of few pixels together. As many windows and maps as stay in the cache are packed one after
  // the other.
  void add_flat(int64_t unit, int64_t last, int64_t group, int64_t row, int64_t row_end, T* sums) const {
    const int64_t rows = std::min(row_end, rows_) - row, pixels = block_ * g_.ow;
    const int64_t most = std::max<int64_t>(1, kFlat / std::max<int64_t>(1, pixels * std::max(rows, padded_)));
    T* windows = scratch<T>(Scratch::kConvRows, most * pixels * rows, "convolution");
    T* map = scratch<T>(Scratch::kConvMap, most * pixels * padded_, "convolution");
    ConvOuter<T> outer{};
    outer.lines = 1, outer.a_pixel = rows, outer.g_pixel = padded_, outer.c_step = padded_;
    while (unit < last) {
      look_in_loop();
      outer.pixels = 0;
      for (const int64_t end = std::min(last, unit + most); unit < end; unit++) {
        const int64_t n = unit / blocks_, h0 = unit % blocks_ * block_, h1 = std::min(h0 + block_, g_.oh);
        const ConvRange range{row, row + rows};
        conv_windows(micro_, g_, call_.in[1], n, group, {h0, h1}, range, windows + outer.pixels * rows);
        const ConvWindow window{call_.in[0], n, group * g_.k, g_.k, h0, h1, 0, g_.ow};
        pack_image(micro_, window, padded_, map + outer.pixels * padded_);
        outer.pixels += (h1 - h0) * g_.ow;
      }
      add_rows(outer, windows, rows, map, sums + row * padded_);
      if (row_end > rows_) add_bias(outer, map, sums);
    }
  }

  void add_bias(ConvOuter<T>& outer, const T* map, T* sums) const {
    for (const ConvPanel& panel : panels_) {
      outer.g = map + panel.at, outer.c = sums + rows_ * padded_ + panel.at;
      micro_.sum[panel.log](outer);
    }
  }

  void add_block(int64_t n, int64_t group, int64_t begin, int64_t end, int64_t row, int64_t row_end, T* sums) const {
    const ConvWindow rows = map_window(call_.in[0], g_, n, group * g_.k, g_.k, begin, end);
    const ConvImage<T> map = packed_window<T>(micro_, rows, direct_map_, padded_, Scratch::kConvMap);
    const ConvWindow window = image_window(call_.in[1], g_, n, group * g_.c, g_.c, begin, end, wide_);
    const ConvImage<T> image = packed_window<T>(micro_, window, direct_image_, g_.c, Scratch::kConvImage);
    ConvOuter<T> outer{};
    outer.a_pixel = g_.sw * image.pixel, outer.a_line = g_.sh * image.line;
    outer.g_pixel = map.pixel, outer.g_line = map.line;
    outer.pixels = g_.ow;
    outer.c_step = padded_;
    // Columns of contiguous taps are one run of rows.
    const bool joined = g_.dw * image.pixel == g_.c;
    const int64_t run = joined ? g_.kw * g_.c : g_.c;
    const int64_t last = std::min(row_end, rows_), step = strip(end - begin);
    for (int64_t line = 0; line < end - begin; line += step) {
      outer.lines = std::min(step, end - begin - line);
      const T* pixels = image.data + line * outer.a_line;
      const T* maps = map.data + line * map.line;
      for (int64_t at = row / run * run; at < last; at += run) {
        const int64_t tap = at / g_.c, kh = tap / g_.kw, kw = tap % g_.kw;
        const int64_t from = std::max(at, row), to = std::min(at + run, last);
        const T* a = pixels + kh * g_.dh * image.line + kw * g_.dw * image.pixel;
        add_rows(outer, a + (from - at), to - from, maps, sums + from * padded_);
      }
      if (row_end > rows_) add_bias(outer, maps, sums);
    }
  }

  // Returns the lines of a block that all rows of the sums use before the next lines.
  int64_t strip(int64_t lines) const {
    const int64_t few = kStrip / std::max<int64_t>(1, wide_ * g_.sh * g_.c + g_.ow * padded_);
    return few * g_.ow < kStripPixels ? lines : std::min(few, lines);
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

  // Adds the chunks' sums of columns [k, end) in order and stores them.
  void store(int64_t group, int64_t k, int64_t end, T* sums) const {
    const ExternView &weight = call_.out[0], &bias = call_.out[1];
    const int64_t *s = weight.strides, taps = g_.kh * g_.kw;
    for (int64_t chunk = 1; chunk < chunks_; chunk++) {
      const T* more = sums + chunk * g_.groups * size_;
      for (int64_t row = 0; row <= rows_; row++) {
        for (int64_t i = row * padded_ + k; i < row * padded_ + end; i++) sums[i] += more[i];
      }
    }
    const int64_t first = group * g_.k + k;
    if (bias.sizes[0] > 0) {
      conv_store(bias, first * bias.strides[0], bias.strides[0], sums + rows_ * padded_ + k, end - k);
    }
    const bool lies = s[3] == 1 && s[2] == g_.kw && s[1] == taps;
    if (lies && is_of<T>(weight)) {
      return store_blocks(sums, k, end, static_cast<T*>(weight.data) + group * g_.k * s[0]);
    }
    for (int64_t row = 0; row < rows_; row++) {
      const int64_t tap = row / g_.c, c = row % g_.c;
      const int64_t at = first * s[0] + c * s[1] + tap / g_.kw * s[2] + tap % g_.kw * s[3];
      conv_store(weight, at, s[0], sums + row * padded_ + k, end - k);
    }
  }

  // Stores columns whose taps of all channels are contiguous, by blocks of columns and channels, or of taps.
  void store_blocks(const T* sums, int64_t k, int64_t end, T* to) const {
    const int64_t taps = g_.kh * g_.kw, step = call_.out[0].strides[0];
    if (taps == 1) return micro_.transpose(sums + k, padded_, to + k * step, step, g_.c, end - k);
    for (int64_t c = 0; c < g_.c; c++) {
      micro_.transpose(sums + c * padded_ + k, g_.c * padded_, to + k * step + c * taps, step, taps, end - k);
    }
  }

  const ExternCall& call_;
  const ConvGeometry g_;
  const ConvMicro<T>& micro_ = conv_micro<T>(call_.isa);
  std::vector<ConvPanel> panels_;
  int64_t rows_, padded_, wide_, block_, blocks_, size_, chunks_, parts_;
  bool direct_image_, direct_map_;
};

}  // namespace

// Attributes: the weight's sizes, then the convolution's attributes.
void run_convolution_weight(const ExternCall& call) {
  const ConvGeometry g = conv_geometry(call.in[1], call.out[0], call.in[0], call.ints.subspan(4));
  const bool wide = call.in[0].dtype == DType::kFloat64;
  if (is_depthwise(g)) return wide ? depthwise_weight<double>(call, g) : depthwise_weight<float>(call, g);
  if (is_of_pairs(call, g)) return convolve_weight_pairs(call, g);
  wide ? Gradient<double>(call, g).run() : Gradient<float>(call, g).run();
}

}  // namespace lutra
