// Converts views of images in any layout and float dtype to images with channels innermost and zeros around them, and
// back.
#include <cstring>

#include "ops/core/interrupt.h"
#include "ops/extern/cpu/conv.h"
#include "ops/extern/cpu/elements.h"

namespace lutra {
namespace {

constexpr int64_t kPixels = 1 << 13;  // between two checks for a stop

template <class T>
constexpr DType dtype_of() {
  return sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;
}

// Packs the channels of one row of pixels: to[pixel * step + channel].
template <class S, class T>
void pack_row(const ConvMicro<T>& micro, const S* from, int64_t pixels, int64_t pixel_stride, int64_t channels,
              int64_t channel_stride, T* to, int64_t step) {
  if (channel_stride == 1) {
    if constexpr (std::is_same_v<S, T>) {
      if (pixel_stride == step && channels == step) {
        std::memcpy(to, from, size_t(pixels * step) * sizeof(T));
        return;
      }
    }
    for (int64_t p = 0; p < pixels; p++) {
      for (int64_t c = 0; c < channels; c++) to[p * step + c] = converted<T>(from[p * pixel_stride + c]);
    }
    return;
  }
  if constexpr (std::is_same_v<S, T>) {
    if (pixel_stride == 1) return micro.transpose(from, channel_stride, to, step, channels, pixels);
  }
  // Takes eight channels at a time: their rows are read side by side, and writes touch few cache lines.
  int64_t c = 0;
  for (; c + 8 <= channels; c += 8) {
    const S* rows = from + c * channel_stride;
    for (int64_t p = 0; p < pixels; p++) {
      for (int64_t i = 0; i < 8; i++) to[p * step + c + i] = converted<T>(rows[i * channel_stride + p * pixel_stride]);
    }
  }
  for (; c < channels; c++) {
    for (int64_t p = 0; p < pixels; p++) to[p * step + c] = converted<T>(from[c * channel_stride + p * pixel_stride]);
  }
}

template <class S, class T>
void unpack_row(const ConvMicro<T>& micro, const T* from, int64_t step, S* to, int64_t pixels, int64_t pixel_stride,
                int64_t channels, int64_t channel_stride) {
  if constexpr (std::is_same_v<S, T>) {
    if (pixel_stride == 1 && channels > 1) return micro.transpose(from, step, to, channel_stride, pixels, channels);
  }
  if (channel_stride == 1) {
    for (int64_t p = 0; p < pixels; p++) {
      for (int64_t c = 0; c < channels; c++) to[p * pixel_stride + c] = S(from[p * step + c]);
    }
    return;
  }
  int64_t c = 0;
  for (; c + 8 <= channels; c += 8) {
    S* rows = to + c * channel_stride;
    for (int64_t p = 0; p < pixels; p++) {
      for (int64_t i = 0; i < 8; i++) rows[i * channel_stride + p * pixel_stride] = S(from[p * step + c + i]);
    }
  }
  for (; c < channels; c++) {
    for (int64_t p = 0; p < pixels; p++) to[c * channel_stride + p * pixel_stride] = S(from[p * step + c]);
  }
}

}  // namespace

template <class T>
bool is_of(const ExternView& v) {
  return v.dtype == dtype_of<T>();
}

template <class T>
bool lies_packed(const ExternView& v) {
  return is_of<T>(v) && (v.strides[1] == 1 || v.sizes[1] == 1);
}

template <class T>
void pack_image(const ConvMicro<T>& micro, const ConvWindow& x, int64_t step, T* to) {
  const int64_t columns = x.w1 - x.w0;
  const int64_t left = std::clamp<int64_t>(-x.w0, 0, columns);
  const int64_t inside = std::clamp<int64_t>(std::min(x.w1, x.view.sizes[3]) - (x.w0 + left), 0, columns - left);
  const int64_t* strides = x.view.strides;
  // Padding channels stay zero.
  if (x.c < step) std::memset(to, 0, size_t((x.h1 - x.h0) * columns * step) * sizeof(T));
  with_float_type(x.view.dtype, [&]<class S>() {
    const auto* data = static_cast<S*>(x.view.data) + x.n * strides[0] + x.c0 * strides[1];
    for (int64_t h = x.h0; h < x.h1; h++, to += columns * step) {
      if (h < 0 || h >= x.view.sizes[2] || inside == 0) {
        std::memset(to, 0, size_t(columns * step) * sizeof(T));
        continue;
      }
      std::memset(to, 0, size_t(left * step) * sizeof(T));
      for (int64_t at = 0; at < inside; at += kPixels) {
        look_in_loop();
        pack_row(micro, data + h * strides[2] + (x.w0 + left + at) * strides[3], std::min(kPixels, inside - at),
                 strides[3], x.c, x.c == 1 ? 1 : strides[1], to + (left + at) * step, step);
      }
      const int64_t right = columns - left - inside;
      std::memset(to + (left + inside) * step, 0, size_t(right * step) * sizeof(T));
    }
  });
}

template <class T>
ConvImage<T> packed_window(const ConvMicro<T>& micro, const ConvWindow& x, bool direct, int64_t step, Scratch slot) {
  const int64_t* s = x.view.strides;
  if (direct) {
    return {static_cast<T*>(x.view.data) + x.n * s[0] + x.c0 * s[1] + x.h0 * s[2] + x.w0 * s[3], s[3], s[2]};
  }
  T* to = scratch<T>(slot, (x.h1 - x.h0) * (x.w1 - x.w0) * step, "convolution");
  pack_image(micro, x, step, to);
  return {to, step, (x.w1 - x.w0) * step};
}

template <class T>
void unpack_image(const ConvMicro<T>& micro, const ConvImage<T>& from, const ExternView& v, int64_t n, int64_t c0,
                  int64_t c, int64_t h0, int64_t h1) {
  with_float_type(v.dtype, [&]<class S>() {
    auto* data = static_cast<S*>(v.data) + n * v.strides[0] + c0 * v.strides[1];
    // Joins consecutive lines into one.
    const int64_t width = v.sizes[3];
    const bool joined = from.line == width * from.pixel && v.strides[2] == width * v.strides[3];
    const int64_t lines = joined ? h1 - h0 : 1, pixels = lines * width;
    for (int64_t h = h0; h < h1; h += lines) {
      for (int64_t at = 0; at < pixels; at += kPixels) {
        look_in_loop();
        unpack_row(micro, from.data + (h - h0) * from.line + at * from.pixel, from.pixel,
                   data + h * v.strides[2] + at * v.strides[3], std::min(kPixels, pixels - at), v.strides[3], c,
                   v.strides[1]);
      }
    }
  });
}

template <class T>
T conv_load(const ExternView& v, int64_t at) {
  T value{};
  with_float_type(v.dtype, [&]<class S>() { value = converted<T>(static_cast<S*>(v.data)[at]); });
  return value;
}

template <class T>
void conv_store(const ExternView& v, int64_t at, int64_t stride, const T* values, int64_t n) {
  with_float_type(v.dtype, [&]<class S>() {
    S* to = static_cast<S*>(v.data) + at;
    for (int64_t i = 0; i < n; i++) to[i * stride] = S(values[i]);
  });
}

namespace {

// Elements of the weights that are contiguous for each column. Element q belongs to row (q % taps, q / taps) of the
// matrix; taps count from `tap`, inner channels from `inner`.
struct WeightRun {
  int64_t from, length, taps, tap, inner;
};

std::vector<WeightRun> weight_runs(const ConvWeights& x) {
  const int64_t taps = x.kh * x.kw, *strides = x.view.strides;
  const bool taps_lie = (x.kw == 1 || strides[3] == 1) && (x.kh == 1 || strides[2] == x.kw);
  std::vector<WeightRun> runs;
  if (taps_lie && (x.inner == 1 || x.inner_stride == taps)) {
    runs.push_back({0, x.inner * taps, taps, 0, 0});
  } else if (taps_lie && taps > 1) {
    for (int64_t i = 0; i < x.inner; i++) runs.push_back({i * x.inner_stride, taps, taps, 0, i});
  } else if (x.inner_stride == 1) {
    for (int64_t t = 0; t < taps; t++) {
      runs.push_back({t / x.kw * strides[2] + t % x.kw * strides[3], x.inner, 1, t, 0});
    }
  }
  return runs;
}

// Packs a panel whose columns are contiguous in runs, by blocks of columns and elements.
template <class T>
void pack_runs(const ConvMicro<T>& micro, const ConvWeights& x, const std::vector<WeightRun>& runs, const T* data,
               int64_t columns, T* to, int64_t width) {
  constexpr int64_t block = 16;
  T buffer[block * block];
  for (const WeightRun& run : runs) {
    if (run.taps == 1) {
      const int64_t at = x.flip ? x.kh * x.kw - 1 - run.tap : run.tap;
      micro.transpose(data + run.from, x.column_stride, to + (at * x.inner + run.inner) * width, width, columns,
                      run.length);
      continue;
    }
    for (int64_t q = 0; q < run.length; q += block) {
      if (q % kStretch == 0) look_in_loop();
      const int64_t n = std::min(block, run.length - q);
      for (int64_t j = 0; j < columns; j += block) {
        const int64_t m = std::min(block, columns - j);
        micro.transpose(data + run.from + q + j * x.column_stride, x.column_stride, buffer, block, m, n);
        int64_t tap = run.tap + q % run.taps, inner = run.inner + q / run.taps;
        for (int64_t i = 0; i < n; i++) {
          const int64_t at = x.flip ? x.kh * x.kw - 1 - tap : tap;
          T* row = to + (at * x.inner + inner) * width + j;
          if (m == block) {
            std::memcpy(row, buffer + i * block, block * sizeof(T));  // a size that the compiler knows
          } else {
            std::memcpy(row, buffer + i * block, size_t(m) * sizeof(T));
          }
          if (++tap == run.taps) tap = 0, inner++;
        }
      }
    }
  }
}

}  // namespace

template <class T>
void pack_weights(const ConvMicro<T>& micro, const ConvWeights& x, const ConvPanel& panel, T* to) {
  const int64_t rows = x.kh * x.kw * x.inner;
  const int64_t columns = std::clamp<int64_t>(x.columns - panel.at, 0, panel.columns);
  T* row = to + rows * panel.at;
  if (columns < panel.columns) std::memset(row, 0, size_t(rows * panel.columns) * sizeof(T));
  with_float_type(x.view.dtype, [&]<class S>() {
    const auto* data = static_cast<S*>(x.view.data) + x.offset + panel.at * x.column_stride;
    if constexpr (std::is_same_v<S, T>) {
      const std::vector<WeightRun> runs = x.column_stride == 1 ? std::vector<WeightRun>() : weight_runs(x);
      if (!runs.empty()) return pack_runs<T>(micro, x, runs, data, columns, row, panel.columns);
    }
    for (int64_t tap = 0; tap < x.kh * x.kw; tap++) {
      const int64_t at = x.flip ? x.kh * x.kw - 1 - tap : tap;
      const auto* from = data + at / x.kw * x.view.strides[2] + at % x.kw * x.view.strides[3];
      for (int64_t i = 0; i < x.inner; i++, row += panel.columns) {
        if (i % kStretch == 0) look_in_loop();
        if constexpr (std::is_same_v<S, T>) {
          if (x.column_stride == 1) {
            std::memcpy(row, from + i * x.inner_stride, size_t(columns) * sizeof(T));
            continue;
          }
        }
        for (int64_t j = 0; j < columns; j++) row[j] = converted<T>(from[i * x.inner_stride + j * x.column_stride]);
      }
    }
  });
}

std::vector<ConvPanel> conv_panels(int64_t columns, int width, const int* most_rows) {
  std::vector<ConvPanel> panels;
  int64_t vectors = (columns + width - 1) / width, at = 0;
  for (int log = 2; log >= 0; log--) {
    for (; most_rows[log] && vectors >= 1 << log; vectors -= 1 << log) {
      panels.push_back({log, at, int64_t(width) << log});
      at += panels.back().columns;
    }
  }
  return panels;
}

#define LUTRA_CONV_PACK(T)                                                                                     \
  template bool is_of<T>(const ExternView&);                                                                   \
  template bool lies_packed<T>(const ExternView&);                                                             \
  template void pack_image<T>(const ConvMicro<T>&, const ConvWindow&, int64_t, T*);                            \
  template ConvImage<T> packed_window<T>(const ConvMicro<T>&, const ConvWindow&, bool, int64_t, Scratch);      \
  template void unpack_image<T>(const ConvMicro<T>&, const ConvImage<T>&, const ExternView&, int64_t, int64_t, \
                                int64_t, int64_t, int64_t);                                                    \
  template void pack_weights<T>(const ConvMicro<T>&, const ConvWeights&, const ConvPanel&, T*);                \
  template T conv_load<T>(const ExternView&, int64_t);                                                         \
  template void conv_store<T>(const ExternView&, int64_t, int64_t, const T*, int64_t);
LUTRA_CONV_PACK(float)
LUTRA_CONV_PACK(double)

}  // namespace lutra
