// Depthwise convolutions (as many groups as channels) and their gradients, by vectors of channels.
//
// Invariants:
// 1. Elements are the chains of conv.cc and conv_weight.cc. A weight's gradient is cut into chunks over the batch and
//    blocks of lines, a function of sizes alone.
// 2. So bits don't depend on layout, partition, threads or instruction set.
#include "ops/core/interrupt.h"
#include "ops/core/numerics.h"
#include "ops/extern/cpu/conv.h"

namespace lutra {
namespace {

// Elements of a packed window that stay in the cache; channels in a part of a weight's gradient; the least pixels of a
// chunk of it.
constexpr int64_t kWindow = 32768, kPartChannels = 64, kChunkPixels = 512;

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// Computes lines x pixels results of all channels. Taps move with them.
template <class T>
struct Tiles {
  int64_t a_line, a_pixel, lines, pixels;
  T* c;
  int64_t c_line, c_pixel;
};

// The shared state of the convolution and the image's gradient: packed weights, blocks of lines.
template <class T>
class Blocks {
 public:
  Blocks(const ExternCall& call, const ConvGeometry& g, int64_t lines, int64_t window_line)
      : call_(call), g_(g), lines_(lines), padded_(padded_to(g.groups, micro_.width)) {
    panels_ = conv_panels(g.groups, micro_.width, micro_.depth_rows);
    direct_ = lies_packed<T>(call.out[0]) && padded_ == g.groups;
    block_ = std::clamp<int64_t>(kWindow / std::max<int64_t>(window_line * padded_, 1), 1, lines);
    if (g.batch < numerics::kConvPieces) {
      block_ = std::min(block_, std::max<int64_t>(1, lines * g.batch / numerics::kConvPieces));
    }
  }

  void pack(const ExternView& weight, bool flip, const ExternView* bias) {
    weights_ = scratch<T>(Scratch::kConvWeight, (g_.kh * g_.kw + 1) * padded_, "convolution");
    start_ = weights_ + g_.kh * g_.kw * padded_;
    const ConvWeights w{weight, 0, g_.kh, g_.kw, flip, 1, 0, g_.groups, weight.strides[0]};
    conv_parallel(call_, int64_t(panels_.size()),
                  [&](int64_t i) { pack_weights(micro_, w, panels_[size_t(i)], weights_); });
    std::fill(start_, start_ + padded_, T(0));
    for (int64_t c = 0; bias && bias->data && c < g_.groups; c++) {
      start_[c] = conv_load<T>(*bias, c * bias->strides[0]);
    }
  }

  // Calls item(n, begin, end, to), which computes an image's lines [begin, end).
  template <class F>
  void run(const F& item) const {
    const int64_t blocks = (lines_ + block_ - 1) / block_;
    const ExternView& out = call_.out[0];
    conv_parallel(call_, g_.batch * blocks, [&](int64_t i) {
      const int64_t n = i / blocks, begin = i % blocks * block_, end = std::min(begin + block_, lines_);
      const ConvWindow window{out, n, 0, g_.groups, begin, end, 0, out.sizes[3]};
      ConvImage<T> to{nullptr, padded_, out.sizes[3] * padded_};
      if (direct_) {
        to = packed_window<T>(micro_, window, true, 0, Scratch::kConvMap);
      } else {
        to.data = scratch<T>(Scratch::kConvMap, (end - begin) * to.line, "convolution");
      }
      item(n, begin, end, to);
      if (!direct_) unpack_image(micro_, to, out, n, 0, g_.groups, begin, end);
    });
  }

  void tiles(const Tiles<T>& t, const std::vector<ConvTap<T>>& taps) const {
    for (const ConvPanel& panel : panels_) {
      const int64_t rows = micro_.depth_rows[panel.log], pieces = (t.pixels + rows - 1) / rows;
      ConvDepth<T> tile{};
      tile.a_step = t.a_pixel, tile.c_step = t.c_pixel;
      tile.b = weights_ + g_.kh * g_.kw * panel.at;
      tile.taps = taps.data(), tile.tap_count = int64_t(taps.size());
      tile.start = start_ + panel.at;
      for (int64_t line = 0; line < t.lines; line++) {
        for (int64_t i = 0; i < pieces; i++) {
          const int64_t p = t.pixels * i / pieces, end = t.pixels * (i + 1) / pieces;
          tile.at = line * t.a_line + p * t.a_pixel + panel.at;
          tile.c = t.c + line * t.c_line + p * t.c_pixel + panel.at;
          micro_.depth[panel.log][end - p](tile);
        }
      }
    }
  }

  ConvImage<T> packed(const ConvWindow& window) const {
    return packed_window<T>(micro_, window, false, padded_, Scratch::kConvImage);
  }
  // Returns whether whole vectors of channels can be read in place.
  bool reads(const ExternView& v) const { return lies_packed<T>(v) && padded_ == g_.groups; }

 private:
  const ExternCall& call_;
  const ConvGeometry g_;
  const ConvMicro<T>& micro_ = conv_micro<T>(call_.isa);
  std::vector<ConvPanel> panels_;
  int64_t lines_, padded_, block_ = 1;
  bool direct_ = false;
  T *weights_ = nullptr, *start_ = nullptr;
};

// Returns whether the windows of all taps lie inside the image.
bool has_no_padding(const ConvGeometry& g, int64_t wide) {
  return g.ph == 0 && g.pw == 0 && (g.oh - 1) * g.sh + (g.kh - 1) * g.dh < g.h && wide <= g.w;
}

// Convolves a block from a packed window.
template <class T>
void convolve_block(const Blocks<T>& blocks, const ConvGeometry& g, const ExternView& image, int64_t n, int64_t begin,
                    int64_t end, const ConvImage<T>& to) {
  const int64_t wide = (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1;
  const int64_t h0 = begin * g.sh - g.ph, h1 = (end - 1) * g.sh - g.ph + (g.kh - 1) * g.dh + 1;
  const ConvWindow window{image, n, 0, g.groups, h0, h1, -g.pw, wide - g.pw};
  const ConvImage<T> from = blocks.packed(window);
  std::vector<ConvTap<T>> taps;
  for (int64_t tap = 0; tap < g.kh * g.kw; tap++) {
    taps.push_back({from.data + tap / g.kw * g.dh * from.line + tap % g.kw * g.dw * from.pixel, tap});
  }
  blocks.tiles({g.sh * from.line, g.sw * from.pixel, end - begin, g.ow, to.data, to.line, to.pixel}, taps);
}

// Convolves a line of an image in place. Its pixels are whole vectors of channels. Taps outside the image read a row of
// zeros. Pixels whose taps all lie inside are computed together, those at the ends one by one.
template <class T>
void convolve_line(const Blocks<T>& blocks, const ConvGeometry& g, const ExternView& image, int64_t n, int64_t line,
                   const T* zeros, T* to, int64_t to_pixel) {
  const int64_t* s = image.strides;
  const T* data = static_cast<const T*>(image.data) + n * s[0];
  const auto clamped = [&](int64_t p) { return std::clamp<int64_t>(p, 0, g.ow); };
  const int64_t first = clamped((g.pw + g.sw - 1) / g.sw);
  const int64_t fits = g.w + g.pw - (g.kw - 1) * g.dw;  // less than a stride times the first pixel that does not fit
  const int64_t last = std::max(first, clamped(fits <= 0 ? 0 : (fits - 1) / g.sw + 1));
  std::vector<ConvTap<T>> taps(size_t(g.kh * g.kw));
  for (int64_t p = 0, end; p < g.ow; p = end) {
    end = p == first && last > first ? last : p + 1;
    for (int64_t tap = 0; tap < g.kh * g.kw; tap++) {
      const int64_t h = line * g.sh - g.ph + tap / g.kw * g.dh, w = p * g.sw - g.pw + tap % g.kw * g.dw;
      const bool inside = h >= 0 && h < g.h && w >= 0 && w < g.w;
      taps[size_t(tap)] = {inside ? data + h * s[2] + w * s[3] : zeros, tap};
    }
    blocks.tiles({0, g.sw * s[3], 1, end - p, to + p * to_pixel, 0, to_pixel}, taps);
  }
}

// flip: computes the gradient by an image for strides of one, which is the convolution of the map with reversed taps.
template <class T>
void convolve(const ExternCall& call, const ConvGeometry& g, bool flip) {
  const ExternView& image = call.in[0];
  const int64_t wide = (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1;
  Blocks<T> blocks(call, g, g.oh, wide * g.sh);
  blocks.pack(call.in[1], flip, flip ? nullptr : &call.in[2]);
  const bool direct = blocks.reads(image);
  const int64_t reach = (g.w + 1) * std::max(image.strides[3], g.groups) * g.sw;
  const std::vector<T> zeros(direct ? size_t(reach) : 0);
  blocks.run([&](int64_t n, int64_t begin, int64_t end, const ConvImage<T>& to) {
    if (!direct) return convolve_block(blocks, g, image, n, begin, end, to);
    for (int64_t line = begin; line < end; line++) {
      convolve_line(blocks, g, image, n, line, zeros.data(), to.data + (line - begin) * to.line, to.pixel);
    }
  });
}

// The first of [begin, end) whose place in the padded image is r modulo the stride, and the number of such places.
struct Phase {
  int64_t first, count;
};
Phase phase_of(int64_t r, int64_t stride, int64_t padding, int64_t begin, int64_t end) {
  const int64_t first = begin + ((r - begin - padding) % stride + stride) % stride;
  return {first, first >= end ? 0 : (end - first + stride - 1) / stride};
}

template <class T>
void convolve_input(const ExternCall& call, const ConvGeometry& g) {
  if (g.sh == 1 && g.sw == 1) return convolve<T>(call, turned_geometry(g), true);
  const int64_t w0 = floor_div(g.pw - (g.kw - 1) * g.dw, g.sw), w1 = floor_div(g.w - 1 + g.pw, g.sw) + 1;
  Blocks<T> blocks(call, g, g.h, std::max<int64_t>(1, (w1 - w0) / g.sh));
  blocks.pack(call.in[1], true, nullptr);
  blocks.run([&](int64_t n, int64_t begin, int64_t end, const ConvImage<T>& to) {
    const int64_t h0 = floor_div(begin + g.ph - (g.kh - 1) * g.dh, g.sh);
    const int64_t h1 = floor_div(end - 1 + g.ph, g.sh) + 1;
    const ConvWindow window{call.in[0], n, 0, g.groups, h0, h1, w0, w1};
    const ConvImage<T> from = blocks.packed(window);
    for (int64_t phase = 0; phase < g.sh * g.sw; phase++) {
      const Phase ph = phase_of(phase / g.sw, g.sh, g.ph, begin, end), pw = phase_of(phase % g.sw, g.sw, g.pw, 0, g.w);
      if (!ph.count || !pw.count) continue;
      std::vector<ConvTap<T>> taps;
      for (int64_t tap = g.kh * g.kw; tap-- > 0;) {
        const int64_t h = ph.first + g.ph - tap / g.kw * g.dh, w = pw.first + g.pw - tap % g.kw * g.dw;
        if (h % g.sh || w % g.sw) continue;
        const int64_t a = (floor_div(h, g.sh) - h0) * from.line + (floor_div(w, g.sw) - w0) * from.pixel;
        taps.push_back({from.data + a, g.kh * g.kw - 1 - tap});
      }
      T* c = to.data + (ph.first - begin) * to.line + pw.first * to.pixel;
      blocks.tiles({from.line, from.pixel, ph.count, pw.count, c, g.sh * to.line, g.sw * to.pixel}, taps);
    }
  });
}

// Computes the gradients of weight and bias, by parts of channels and chunks of the batch.
template <class T>
class Gradient {
 public:
  Gradient(const ExternCall& call, const ConvGeometry& g) : call_(call), g_(g), taps_(g.kh * g.kw) {
    wide_ = (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1;
    parts_ = (g.groups + kPartChannels - 1) / kPartChannels;
    const int64_t line = std::max<int64_t>(1, wide_ * g.sh * std::min(g.groups, kPartChannels));
    block_ = std::clamp<int64_t>(kWindow / line, 1, std::max<int64_t>(g.oh, 1));
    if (g.batch < numerics::kConvChunks) {
      block_ = std::min(block_, std::max<int64_t>(1, g.oh * g.batch / numerics::kConvChunks));
    }
    blocks_ = (g.oh + block_ - 1) / block_;
    const int64_t worth = g.batch * g.oh * g.ow / kChunkPixels;
    chunks_ = std::clamp<int64_t>(std::min(g.batch * blocks_, worth), 1, numerics::kConvChunks);
    const bool whole = g.groups % micro_.width == 0;
    direct_image_ = whole && lies_packed<T>(call.in[1]) && has_no_padding(g, wide_);
    direct_map_ = whole && lies_packed<T>(call.in[0]);
  }

  void run() {
    T* partial = scratch<T>(Scratch::kConvPartial, chunks_ * parts_ * size(), "convolution");
    conv_parallel(call_, chunks_ * parts_, [&](int64_t i) {
      const int64_t chunk = i / parts_, part = i % parts_, units = g_.batch * blocks_;
      T* sums = partial + i * size();
      std::fill(sums, sums + size(), T(0));
      for (int64_t u = units * chunk / chunks_; u < units * (chunk + 1) / chunks_; u++) {
        const int64_t begin = u % blocks_ * block_;
        look_in_loop();
        add_block(u / blocks_, part, begin, std::min(begin + block_, g_.oh), sums);
      }
    });
    for (int64_t part = 0; part < parts_; part++) store(part, partial);
  }

 private:
  int64_t size() const { return (taps_ + 1) * kPartChannels; }
  int64_t channels(int64_t part) const { return std::min(kPartChannels, g_.groups - part * kPartChannels); }

  void add_block(int64_t n, int64_t part, int64_t begin, int64_t end, T* sums) const {
    const int64_t c0 = part * kPartChannels, c = channels(part), padded = padded_to(c, micro_.width);
    const ConvWindow rows = map_window(call_.in[0], g_, n, c0, c, begin, end);
    const ConvImage<T> map = packed_window<T>(micro_, rows, direct_map_, padded, Scratch::kConvMap);
    const ConvWindow window = image_window(call_.in[1], g_, n, c0, c, begin, end, wide_);
    const ConvImage<T> image = packed_window<T>(micro_, window, direct_image_, padded, Scratch::kConvImage);
    std::vector<ConvTap<T>> taps;
    for (int64_t tap = 0; tap < taps_; tap++) {
      taps.push_back({image.data + tap / g_.kw * g_.dh * image.line + tap % g_.kw * g_.dw * image.pixel, 0});
    }
    ConvDepthOuter<T> d{};
    ConvOuter<T>& o = d.outer;
    o.a_pixel = g_.sw * image.pixel, o.a_line = g_.sh * image.line;
    o.g_pixel = map.pixel, o.g_line = map.line;
    o.pixels = g_.ow, o.lines = end - begin;
    o.c_step = kPartChannels;
    constexpr int64_t most = ConvMicro<T>::kMaxRows;
    const int64_t pieces = (taps_ + most - 1) / most;
    for (int64_t at = 0; at < padded; at += micro_.width) {
      d.at = at, o.g = map.data + at;
      for (int64_t i = 0; i < pieces; i++) {
        const int64_t tap = taps_ * i / pieces, last = taps_ * (i + 1) / pieces;
        d.taps = taps.data() + tap, o.c = sums + tap * kPartChannels + at;
        micro_.depth_outer[last - tap](d);
      }
      o.c = sums + taps_ * kPartChannels + at;
      if (call_.out[1].sizes[0] > 0) micro_.sum[0](o);
    }
  }

  // Adds the chunks' sums in order and stores them.
  void store(int64_t part, T* partial) const {
    const ExternView &weight = call_.out[0], &bias = call_.out[1];
    const int64_t c0 = part * kPartChannels, c = channels(part);
    T* sums = partial + part * size();
    for (int64_t chunk = 1; chunk < chunks_; chunk++) {
      const T* more = sums + chunk * parts_ * size();
      for (int64_t i = 0; i < size(); i++) sums[i] += more[i];
    }
    for (int64_t tap = 0; tap < taps_; tap++) {
      const int64_t at = c0 * weight.strides[0] + tap / g_.kw * weight.strides[2] + tap % g_.kw * weight.strides[3];
      conv_store(weight, at, weight.strides[0], sums + tap * kPartChannels, c);
    }
    if (bias.sizes[0] > 0) conv_store(bias, c0 * bias.strides[0], bias.strides[0], sums + taps_ * kPartChannels, c);
  }

  const ExternCall& call_;
  const ConvGeometry g_;
  const ConvMicro<T>& micro_ = conv_micro<T>(call_.isa);
  int64_t taps_, wide_, parts_, block_, blocks_, chunks_;
  bool direct_image_, direct_map_;
};

}  // namespace

bool is_depthwise(const ConvGeometry& g) { return g.groups > 1 && g.c == 1 && g.k == 1; }

template <class T>
void depthwise(const ExternCall& call, const ConvGeometry& g) {
  convolve<T>(call, g, false);
}
template <class T>
void depthwise_input(const ExternCall& call, const ConvGeometry& g) {
  convolve_input<T>(call, g);
}
template <class T>
void depthwise_weight(const ExternCall& call, const ConvGeometry& g) {
  Gradient<T>(call, g).run();
}

#define LUTRA_DEPTHWISE(T)                                                  \
  template void depthwise<T>(const ExternCall&, const ConvGeometry&);       \
  template void depthwise_input<T>(const ExternCall&, const ConvGeometry&); \
  template void depthwise_weight<T>(const ExternCall&, const ConvGeometry&);
LUTRA_DEPTHWISE(float)
LUTRA_DEPTHWISE(double)

}  // namespace lutra
