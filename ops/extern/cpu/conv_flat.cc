// Convolutions as one product: the windows of all pixels of the batch are the rows of a matrix. It serves maps whose
// lines have too few pixels for a tile, and kernels of one pixel. Elements are the chains of conv.cc.
#include <cstring>

#include "ops/core/interrupt.h"
#include "ops/extern/cpu/conv.h"

namespace lutra {
namespace {

// The most elements of the windows; those of a block of rows that stays in the cache; pixels of a line that fill a
// tile.
constexpr int64_t kMaxWindows = 1 << 20, kRowBlock = 1 << 17, kLine = 8;
// Enough panels for all threads.
constexpr int64_t kPieces = 8;

bool is_pointwise(const ConvGeometry& g) {
  return g.kh == 1 && g.kw == 1 && g.sh == 1 && g.sw == 1 && g.oh == g.h && g.ow == g.w;
}

// Returns whether pixels follow each other in memory, each a row of channels.
template <class T>
bool is_matrix(const ExternView& v) {
  return lies_packed<T>(v) && v.strides[2] == v.sizes[3] * v.strides[3] && v.strides[0] == v.sizes[2] * v.strides[2];
}

template <class T>
class Product {
 public:
  Product(const ExternCall& call, const ConvGeometry& g) : call_(call), g_(g), rows_(g.kh * g.kw * g.c) {
    panels_ = conv_panels(g.k, micro_.width, micro_.tile_rows);
    padded_ = padded_to(g.k, micro_.width);
    pixels_ = g.oh * g.ow;
    const ExternView &image = call.in[0], &out = call.out[0];
    direct_in_ = is_pointwise(g) && is_matrix<T>(image);
    direct_out_ = is_matrix<T>(out) && padded_ == g.k;
    a_step_ = direct_in_ ? image.strides[3] : rows_, a_group_ = direct_in_ ? g.c : g.batch * pixels_ * rows_;
    c_step_ = direct_out_ ? out.strides[3] : padded_, c_group_ = direct_out_ ? g.k : g.batch * pixels_ * padded_;
  }

  // weights(group) returns the weights of a group. The bias may be null.
  template <class F>
  void run(const F& weights, const ExternView* bias) {
    const int64_t panels = int64_t(panels_.size()), all = g_.batch * pixels_;
    // The larger operand goes through the cache once. If that is the weights, their panels are packed where they are
    // used. If it is the windows, a block of them meets all panels.
    const bool packs_alone = g_.groups * panels >= kPieces && padded_ > all;
    T* weights_of_all = scratch<T>(Scratch::kConvWeight, packs_alone ? 0 : g_.groups * rows_ * padded_, "convolution");
    starts_.assign(size_t(g_.groups * padded_), T(0));
    for (int64_t i = 0; bias && bias->data && i < g_.groups * g_.k; i++) {
      starts_[size_t(i / g_.k * padded_ + i % g_.k)] = conv_load<T>(*bias, i * bias->strides[0]);
    }
    const auto panel_of = [&](int64_t i) { return panels_[size_t(i % panels)]; };
    const auto pack = [&](int64_t i, T* to) {
      const ConvPanel panel = panel_of(i);
      pack_weights(micro_, weights(i / panels), panel, to - rows_ * panel.at);
    };
    const auto shared = [&](int64_t i) { return weights_of_all + rows_ * (i / panels * padded_ + panel_of(i).at); };
    if (!packs_alone) conv_parallel(call_, g_.groups * panels, [&](int64_t i) { pack(i, shared(i)); });
    prepare_operands();
    const int64_t block = std::max<int64_t>(ConvMicro<T>::kMaxRows, kRowBlock / std::max<int64_t>(rows_, 1));
    const int64_t blocks = (all + block - 1) / block;
    if (packs_alone) {
      conv_parallel(call_, g_.groups * panels, [&](int64_t i) {
        T* own = scratch<T>(Scratch::kConvRows, rows_ * panel_of(i).columns, "convolution");
        pack(i, own);
        for (int64_t at = 0; at < blocks; at++) {
          multiply(i / panels, panel_of(i), own, all * at / blocks, all * (at + 1) / blocks);
        }
      });
    } else {
      conv_parallel(call_, g_.groups * panels * blocks, [&](int64_t i) {
        const int64_t items = g_.groups * panels, at = i / items, item = i % items;
        multiply(item / panels, panel_of(item), shared(item), all * at / blocks, all * (at + 1) / blocks);
      });
    }
    if (!direct_out_) unpack();
  }

 private:
  void unpack() const {
    conv_parallel(call_, g_.batch * g_.groups, [&](int64_t i) {
      const int64_t n = i / g_.groups, group = i % g_.groups;
      const ConvImage<T> from{c_ + group * c_group_ + n * pixels_ * padded_, padded_, g_.ow * padded_};
      unpack_image(micro_, from, call_.out[0], n, group * g_.k, g_.k, 0, g_.oh);
    });
  }

  void prepare_operands() {
    a_ = direct_in_ ? static_cast<T*>(call_.in[0].data)
                    : scratch<T>(Scratch::kConvPartial, g_.groups * a_group_, "convolution");
    c_ = direct_out_ ? static_cast<T*>(call_.out[0].data)
                     : scratch<T>(Scratch::kConvMap, g_.groups * c_group_, "convolution");
    if (!direct_in_) {
      conv_parallel(call_, g_.batch * g_.groups, [&](int64_t i) { pack_windows(i / g_.groups, i % g_.groups); });
    }
  }

  void pack_windows(int64_t n, int64_t group) const {
    const ExternView& image = call_.in[0];
    T* to = a_ + group * a_group_ + n * pixels_ * rows_;
    if (is_pointwise(g_)) return pack_image(micro_, {image, n, group * g_.c, g_.c, 0, g_.h, 0, g_.w}, g_.c, to);
    conv_windows(micro_, g_, image, n, group, {0, g_.oh}, {0, rows_}, to);
  }

  void multiply(int64_t group, const ConvPanel& panel, const T* weights, int64_t begin, int64_t end) const {
    const int64_t most = micro_.tile_rows[panel.log], count = end - begin, pieces = (count + most - 1) / most;
    const T* starts = starts_.data() + group * padded_ + panel.at;
    for (int64_t row = 0; row < rows_; row += kConvPassRows) {
      const ConvRun run{row, std::min(kConvPassRows, rows_ - row), row};
      ConvTile<T> tile{};
      tile.a_step = a_step_, tile.c_step = c_step_;
      tile.b = weights;
      tile.runs = &run, tile.run_count = 1;
      tile.start = row == 0 ? starts : nullptr;
      for (int64_t i = 0; i < pieces; i++) {
        if (i % kPieces == 0) look_in_loop();
        const int64_t p = begin + count * i / pieces, last = begin + count * (i + 1) / pieces;
        tile.a = a_ + group * a_group_ + p * a_step_;
        tile.c = c_ + group * c_group_ + p * c_step_ + panel.at;
        micro_.tile[panel.log][last - p](tile);
      }
    }
  }

  const ExternCall& call_;
  const ConvGeometry g_;
  const ConvMicro<T>& micro_ = conv_micro<T>(call_.isa);
  std::vector<ConvPanel> panels_;
  int64_t rows_, padded_, pixels_, a_step_, a_group_, c_step_, c_group_;
  bool direct_in_, direct_out_;
  std::vector<T> starts_;
  T *a_ = nullptr, *c_ = nullptr;
};

}  // namespace

bool is_small_map(const ConvGeometry& g) { return g.ow < kLine && g.batch * g.oh > 1; }

template <class T>
bool is_flat(const ExternCall& call, const ConvGeometry& g) {
  if (g.kh * g.kw * g.c == 0) return false;
  const bool lies = is_matrix<T>(call.in[0]) && is_matrix<T>(call.out[0]) && g.k % conv_micro<T>(call.isa).width == 0;
  if (is_pointwise(g) && lies) return true;
  return is_small_map(g) && g.batch * g.oh * g.ow * g.kh * g.kw * g.c * g.groups <= kMaxWindows;
}

template <class T>
void conv_windows(const ConvMicro<T>& micro, const ConvGeometry& g, const ExternView& image, int64_t n, int64_t group,
                  ConvRange lines, ConvRange rows, T* to) {
  const int64_t wide = (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1;
  const int64_t h0 = lines.begin * g.sh - g.ph, h1 = (lines.end - 1) * g.sh - g.ph + (g.kh - 1) * g.dh + 1;
  const ConvWindow window{image, n, group * g.c, g.c, h0, h1, -g.pw, wide - g.pw};
  const ConvImage<T> from = packed_window<T>(micro, window, false, g.c, Scratch::kConvImage);
  for (int64_t pixel = 0; pixel < (lines.end - lines.begin) * g.ow; pixel++) {
    const T* at = from.data + pixel / g.ow * g.sh * from.line + pixel % g.ow * g.sw * from.pixel;
    for (int64_t row = rows.begin; row < rows.end;) {
      const int64_t tap = row / g.c, last = std::min(rows.end, (tap + 1) * g.c);
      const T* values = at + tap / g.kw * g.dh * from.line + tap % g.kw * g.dw * from.pixel + row % g.c;
      std::memcpy(to, values, size_t(last - row) * sizeof(T));
      to += last - row, row = last;
    }
  }
}

template <class T>
void convolve_flat(const ExternCall& call, const ConvGeometry& g) {
  const auto weights = [&](int64_t group) { return forward_weights(call.in[1], g, group); };
  Product<T>(call, g).run(weights, &call.in[2]);
}

template <class T>
void convolve_input_flat(const ExternCall& call, const ConvGeometry& turned) {
  const auto weights = [&](int64_t group) { return turned_weights(call.in[1], turned, group); };
  Product<T>(call, turned).run(weights, nullptr);
}

ConvGeometry turned_geometry(const ConvGeometry& g) {
  ConvGeometry t = g;
  t.c = g.k, t.k = g.c, t.h = g.oh, t.w = g.ow, t.oh = g.h, t.ow = g.w;
  t.ph = (g.kh - 1) * g.dh - g.ph, t.pw = (g.kw - 1) * g.dw - g.pw;
  return t;
}

#define LUTRA_CONV_FLAT(T)                                                                                     \
  template bool is_flat<T>(const ExternCall&, const ConvGeometry&);                                            \
  template void convolve_flat<T>(const ExternCall&, const ConvGeometry&);                                      \
  template void convolve_input_flat<T>(const ExternCall&, const ConvGeometry&);                                \
  template void conv_windows<T>(const ConvMicro<T>&, const ConvGeometry&, const ExternView&, int64_t, int64_t, \
                                ConvRange, ConvRange, T*);
LUTRA_CONV_FLAT(float)
LUTRA_CONV_FLAT(double)

}  // namespace lutra
