// Convolution and its gradient by the image, as products of image windows and packed weights.
//
// Invariants:
// 1. An element of a result is its bias (or zero), then one fused multiply-add after the other: over (kh, kw, c) for
//    the convolution, over (kh, kw, k) with taps from the last to the first for the image's gradient. Half types are
//    computed in float and rounded once. Padding takes part as zeros.
// 2. Convolutions of bfloat16, and their gradients by an image for strides of one, are those of conv_pairs.cc, unless
//    they have many groups of few channels.
// 3. So bits don't depend on layout, partition, threads or instruction set.
#include "ops/extern/cpu/conv.h"
#include "ops/core/interrupt.h"
#include "ops/extern/cpu/conv_pairs.h"

namespace lutra {

namespace {

// Elements of a packed window that stay in the cache.
constexpr int64_t kWindow = 32768;
// Pieces of a small batch.
constexpr int64_t kPieces = 8;
// Tiles between two checks for a stop.
constexpr int64_t kLookEach = 64;

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// Appends a run, or extends the last one.
void add_run(std::vector<ConvRun>& runs, int64_t a, int64_t length, int64_t b) {
  if (!runs.empty() && runs.back().a + runs.back().length == a && runs.back().b + runs.back().length == b) {
    runs.back().length += length;
  } else if (length > 0) {
    runs.push_back({a, length, b});
  }
}

// Cuts runs into passes of kConvPassRows rows.
std::vector<std::vector<ConvRun>> passes_of(const std::vector<ConvRun>& runs) {
  std::vector<std::vector<ConvRun>> passes(1);
  int64_t room = kConvPassRows;
  for (ConvRun r : runs) {
    while (r.length > 0) {
      if (room == 0) passes.emplace_back(), room = kConvPassRows;
      const int64_t n = std::min(room, r.length);
      passes.back().push_back({r.a, n, r.b});
      r.a += n, r.b += n, r.length -= n, room -= n;
    }
  }
  return passes;
}

// Computes lines x pixels results. Each is a row of panels.
template <class T>
struct Tiles {
  const T* a;
  int64_t a_line, a_pixel, lines, pixels;
  T* c;
  int64_t c_line, c_pixel;
  const T* weights;  // of the group, packed
  int64_t rows;      // of the weights
  const T* start;
};

template <class T>
void run_tiles(const ConvMicro<T>& micro, const Tiles<T>& t, const std::vector<ConvPanel>& panels,
               const std::vector<ConvRun>& runs) {
  if (t.lines <= 0 || t.pixels <= 0) return;
  bool first = true;
  for (const std::vector<ConvRun>& pass : passes_of(runs)) {
    for (const ConvPanel& panel : panels) {
      const int64_t pieces = (t.pixels + micro.tile_rows[panel.log] - 1) / micro.tile_rows[panel.log];
      ConvTile<T> tile{};
      tile.a_step = t.a_pixel, tile.c_step = t.c_pixel;
      tile.b = t.weights + t.rows * panel.at;
      tile.runs = pass.data(), tile.run_count = int64_t(pass.size());
      tile.start = first ? t.start + panel.at : nullptr;
      for (int64_t line = 0; line < t.lines; line++) {
        for (int64_t i = 0; i < pieces; i++) {
          if (i % kLookEach == 0) look_in_loop();
          const int64_t p = t.pixels * i / pieces, end = t.pixels * (i + 1) / pieces;
          tile.a = t.a + line * t.a_line + p * t.a_pixel;
          tile.c = t.c + line * t.c_line + p * t.c_pixel + panel.at;
          micro.tile[panel.log][end - p](tile);
        }
      }
    }
    first = false;
  }
}

// The shared state of the convolution and the image's gradient: packed weights, the place of results, the blocks of
// lines.
template <class T>
struct Direction {
  const ExternCall& call;
  ConvGeometry g;
  const ConvMicro<T>& micro = conv_micro<T>(call.isa);
  std::vector<ConvPanel> panels;
  int64_t columns, rows, lines;  // of a group's result; of a group's weights; of the result
  T* weights = nullptr;
  T* starts = nullptr;
  bool direct_in = false, direct_out = false;
  int64_t block = 1, blocks = 1;

  Direction(const ExternCall& call, const ConvGeometry& g, int64_t columns, int64_t rows, int64_t lines)
      : call(call), g(g), columns(columns), rows(rows), lines(lines) {
    panels = conv_panels(columns, micro.width, micro.tile_rows);
  }
  int64_t padded() const { return padded_to(columns, micro.width); }

  void prepare(int64_t window_line) {
    weights = scratch<T>(Scratch::kConvWeight, g.groups * (rows + 1) * padded(), "convolution");
    starts = weights + g.groups * rows * padded();
    std::fill(starts, starts + g.groups * padded(), T(0));
    direct_out = lies_packed<T>(call.out[0]) && padded() == columns;
    block = std::clamp<int64_t>(kWindow / std::max<int64_t>(window_line, 1), 1, lines);
    const int64_t images = std::max<int64_t>(g.batch * g.groups, 1);
    if (images < kPieces) block = std::min(block, std::max<int64_t>(1, lines * images / kPieces));
    blocks = (lines + block - 1) / block;
  }

  void pack(const ConvWeights& w, int64_t group) const {
    T* to = weights + group * rows * padded();
    conv_parallel(call, int64_t(panels.size()), [&](int64_t i) { pack_weights(micro, w, panels[size_t(i)], to); });
  }

  // Returns the memory in which lines [begin, end) of a result are computed.
  ConvImage<T> target(int64_t n, int64_t group, int64_t begin, int64_t end) const {
    const ConvWindow window{call.out[0], n, group * columns, columns, begin, end, 0, call.out[0].sizes[3]};
    if (direct_out) return packed_window<T>(micro, window, true, 0, Scratch::kConvMap);
    const int64_t step = padded();
    T* to = scratch<T>(Scratch::kConvMap, (end - begin) * window.w1 * step, "convolution");
    return {to, step, window.w1 * step};
  }

  template <class F>
  void run(const F& item) {
    conv_parallel(call, g.batch * g.groups * blocks, [&](int64_t i) {
      const int64_t n = i / (g.groups * blocks), group = i / blocks % g.groups, begin = i % blocks * block;
      const int64_t end = std::min(begin + block, lines);
      const ConvImage<T> to = target(n, group, begin, end);
      item(n, group, begin, end, to);
      if (!direct_out) unpack_image(micro, to, call.out[0], n, group * columns, columns, begin, end);
    });
  }
};

template <class T>
void convolve(const ExternCall& call, const ConvGeometry& g) {
  if (is_depthwise(g)) return depthwise<T>(call, g);
  if (is_of_pairs(call, g)) return convolve_pairs(call, g);
  if (is_flat<T>(call, g)) return convolve_flat<T>(call, g);
  const ExternView &image = call.in[0], &weight = call.in[1], &bias = call.in[2];
  Direction<T> d(call, g, g.k, g.kh * g.kw * g.c, g.oh);
  const int64_t wide = (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1;
  d.direct_in =
      lies_packed<T>(image) && g.ph == 0 && g.pw == 0 && (g.oh - 1) * g.sh + (g.kh - 1) * g.dh < g.h && wide <= g.w;
  d.prepare(wide * g.c * g.sh);
  for (int64_t group = 0; group < g.groups; group++) {
    const ConvWeights w{
        weight, group * g.k * weight.strides[0], g.kh, g.kw, false, g.c, weight.strides[1], g.k, weight.strides[0]};
    d.pack(w, group);
    for (int64_t k = 0; bias.data && k < g.k; k++) {
      d.starts[group * d.padded() + k] = conv_load<T>(bias, (group * g.k + k) * bias.strides[0]);
    }
  }
  d.run([&](int64_t n, int64_t group, int64_t begin, int64_t end, const ConvImage<T>& to) {
    const int64_t h0 = begin * g.sh - g.ph, h1 = (end - 1) * g.sh - g.ph + (g.kh - 1) * g.dh + 1;
    const ConvWindow window{image, n, group * g.c, g.c, h0, h1, -g.pw, wide - g.pw};
    const ConvImage<T> from = packed_window<T>(d.micro, window, d.direct_in, g.c, Scratch::kConvImage);
    std::vector<ConvRun> runs;
    for (int64_t kh = 0; kh < g.kh; kh++) {
      for (int64_t kw = 0; kw < g.kw; kw++) {
        add_run(runs, kh * g.dh * from.line + kw * g.dw * from.pixel, g.c, (kh * g.kw + kw) * g.c);
      }
    }
    run_tiles(d.micro,
              Tiles<T>{from.data, g.sh * from.line, g.sw * from.pixel, end - begin, g.ow, to.data, to.line, to.pixel,
                       d.weights + group * d.rows * d.padded(), d.rows, d.starts + group * d.padded()},
              d.panels, runs);
  });
}

// Pixels h = first + i * stride of the image's gradient whose taps meet whole map positions.
struct Phase {
  int64_t first, count;  // the first h, and how many there are up to the end
};
Phase phase_of(int64_t r, int64_t stride, int64_t padding, int64_t begin, int64_t end) {
  int64_t shift = (r - begin - padding) % stride;
  if (shift < 0) shift += stride;
  const int64_t first = begin + shift;
  return {first, first >= end ? 0 : (end - first + stride - 1) / stride};
}

// Computes one phase of one block: pixels of the image that meet the same taps.
template <class T>
void gradient_phase(const Direction<T>& d, int64_t group, const Phase& ph, const Phase& pw, const ConvImage<T>& from,
                    int64_t map_h, int64_t map_w, const ConvImage<T>& to, int64_t begin) {
  const ConvGeometry& g = d.g;
  std::vector<ConvRun> runs;
  for (int64_t kh = g.kh; kh-- > 0;) {
    const int64_t h = ph.first + g.ph - kh * g.dh;
    if (h % g.sh != 0) continue;
    for (int64_t kw = g.kw; kw-- > 0;) {
      const int64_t w = pw.first + g.pw - kw * g.dw;
      if (w % g.sw != 0) continue;
      const int64_t a = (floor_div(h, g.sh) - map_h) * from.line + (floor_div(w, g.sw) - map_w) * from.pixel;
      add_run(runs, a, g.k, ((g.kh - 1 - kh) * g.kw + g.kw - 1 - kw) * g.k);
    }
  }
  run_tiles(d.micro,
            Tiles<T>{from.data, from.line, from.pixel, ph.count, pw.count,
                     to.data + (ph.first - begin) * to.line + pw.first * to.pixel, g.sh * to.line, g.sw * to.pixel,
                     d.weights + group * d.rows * d.padded(), d.rows, d.starts + group * d.padded()},
            d.panels, runs);
}

template <class T>
void convolve_input(const ExternCall& call, const ConvGeometry& g) {
  if (is_depthwise(g)) return depthwise_input<T>(call, g);
  if (g.sh == 1 && g.sw == 1 && is_of_pairs(call, g)) return convolve_input_pairs(call, turned_geometry(g));
  if (g.sh == 1 && g.sw == 1 && is_flat<T>(call, turned_geometry(g))) {
    return convolve_input_flat<T>(call, turned_geometry(g));
  }
  const ExternView &map = call.in[0], &weight = call.in[1];
  Direction<T> d(call, g, g.c, g.kh * g.kw * g.k, g.h);
  const int64_t w0 = floor_div(g.pw - (g.kw - 1) * g.dw, g.sw), w1 = floor_div(g.w - 1 + g.pw, g.sw) + 1;
  d.prepare((w1 - w0) * g.k / g.sh);
  for (int64_t group = 0; group < g.groups; group++) {
    const ConvWeights w{
        weight, group * g.k * weight.strides[0], g.kh, g.kw, true, g.k, weight.strides[0], g.c, weight.strides[1]};
    d.pack(w, group);
  }
  d.run([&](int64_t n, int64_t group, int64_t begin, int64_t end, const ConvImage<T>& to) {
    const int64_t h0 = floor_div(begin + g.ph - (g.kh - 1) * g.dh, g.sh);
    const int64_t h1 = floor_div(end - 1 + g.ph, g.sh) + 1;
    const ConvWindow window{map, n, group * g.k, g.k, h0, h1, w0, w1};
    const ConvImage<T> from = packed_window<T>(d.micro, window, false, g.k, Scratch::kConvImage);
    for (int64_t rh = 0; rh < g.sh; rh++) {
      const Phase ph = phase_of(rh, g.sh, g.ph, begin, end);
      for (int64_t rw = 0; rw < g.sw; rw++) {
        const Phase pw = phase_of(rw, g.sw, g.pw, 0, g.w);
        if (ph.count && pw.count) gradient_phase(d, group, ph, pw, from, h0, w0, to, begin);
      }
    }
  });
}

}  // namespace

ConvGeometry conv_geometry(const ExternView& image, const ExternView& weight, const ExternView& map,
                           std::span<const int64_t> ints) {
  LUTRA_CHECK(image.dim == 4 && weight.dim == 4 && map.dim == 4 && ints.size() >= 9);
  ConvGeometry g{};
  g.batch = image.sizes[0], g.groups = ints[8];
  g.c = weight.sizes[1], g.k = weight.sizes[0] / g.groups;
  g.h = image.sizes[2], g.w = image.sizes[3], g.oh = map.sizes[2], g.ow = map.sizes[3];
  g.kh = weight.sizes[2], g.kw = weight.sizes[3];
  g.sh = ints[0], g.sw = ints[1], g.ph = ints[2], g.pw = ints[3], g.dh = ints[6], g.dw = ints[7];
  LUTRA_CHECK(image.sizes[1] == g.c * g.groups && map.sizes[1] == g.k * g.groups);
  return g;
}

bool conv_supports(DType dtype) { return is_float(dtype); }

void run_convolution(const ExternCall& call) {
  const ConvGeometry g = conv_geometry(call.in[0], call.in[1], call.out[0], call.ints);
  if (call.out[0].numel() == 0) return;
  call.out[0].dtype == DType::kFloat64 ? convolve<double>(call, g) : convolve<float>(call, g);
}

// Attributes: the image's sizes, then the convolution's attributes.
void run_convolution_input(const ExternCall& call) {
  const ConvGeometry g = conv_geometry(call.out[0], call.in[1], call.in[0], call.ints.subspan(4));
  if (call.out[0].numel() == 0) return;
  call.out[0].dtype == DType::kFloat64 ? convolve_input<double>(call, g) : convolve_input<float>(call, g);
}

}  // namespace lutra
