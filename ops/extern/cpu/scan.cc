// Running sums, products and extremes along one dimension of contiguous views. Floats are summed in float64 and rounded
// when they are stored, as in PyTorch. Lines are independent, so threads do not change a bit.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ops/core/element_types.h"
#include "ops/core/error.h"
#include "ops/core/interrupt.h"
#include "ops/extern/cpu/kernels.h"

namespace lutra {
namespace {

constexpr int64_t kBlock = 256;      // lines that are scanned side by side
constexpr int64_t kStrip = 16;       // lines in one loop, whose length the compiler knows
constexpr int64_t kGrain = 1 << 14;  // elements in a task

// `outer` lines of n elements, of which `inner` lie side by side.
struct Shape {
  int64_t outer = 1, n = 1, inner = 1;
  bool reverse = false;
};

Shape shape_of(const ExternCall& call) {
  Shape s;
  const ExternView& v = call.in[0];
  const auto dim = int32_t(call.ints[0]);
  for (int32_t d = 0; d < v.dim; d++) (d < dim ? s.outer : d == dim ? s.n : s.inner) *= v.sizes[d];
  s.reverse = call.ints[1] != 0;
  return s;
}

// Calls body(first element of the block's first line, lines in the block).
template <class F>
void each_block(const ExternCall& call, const Shape& s, const F& body) {
  if (s.outer * s.n * s.inner == 0) return;
  const int64_t blocks = (s.inner + kBlock - 1) / kBlock;
  const int64_t grain = std::max<int64_t>(1, kGrain / (s.n * std::min(s.inner, kBlock)));
  call.parallel(s.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t column = i % blocks * kBlock;
      body(i / blocks * s.n * s.inner + column, std::min(kBlock, s.inner - column));
    }
  });
}

// Scans contiguous lines, two at a time, because one alone waits for each of its sums. If lines are a power of two
// apart, more would not fit in the ways of a cache.
template <class T, class Acc, class Op>
void scan_lines(const ExternCall& call, const Shape& s, Acc start, const Op& op) {
  constexpr int64_t kTogether = 2;
  const int64_t groups = (s.outer + kTogether - 1) / kTogether;
  call.parallel(groups, std::max<int64_t>(1, kGrain / (s.n * kTogether)), [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; g++) {
      const auto* in = static_cast<const T*>(call.in[0].data) + g * kTogether * s.n;
      auto* out = static_cast<T*>(call.out[0].data) + g * kTogether * s.n;
      auto lines = [&](auto count) {
        Acc acc[kTogether];
        std::fill_n(acc, kTogether, start);
        in_stretches(s.n, [&](int64_t from, int64_t to) {
          for (int64_t i = from; i < to; i++) {
            const int64_t k = s.reverse ? s.n - 1 - i : i;
            for (int64_t r = 0; r < count; r++) {
              acc[r] = op(acc[r], Acc(in[r * s.n + k]));
              out[r * s.n + k] = T(acc[r]);
            }
          }
        });
      };
      const int64_t rows = std::min(kTogether, s.outer - g * kTogether);
      rows == kTogether ? lines(std::integral_constant<int64_t, kTogether>()) : lines(rows);
    }
  });
}

// Scans contiguous lines of integers, whose results are the same in any order. So only one step in four waits for the
// one before.
template <int64_t kStep, class T, class Acc, class Op>
void scan_integer_line(const T* in, T* out, int64_t n, Acc acc, const Op& op) {
  in_stretches(n, [&](int64_t from, int64_t to) {
    int64_t i = from;
    for (; i + 4 <= to; i += 4) {
      const T* a = in + i * kStep;
      T* r = out + i * kStep;
      const Acc one = Acc(a[0]), two = op(one, Acc(a[kStep])), last = op(Acc(a[2 * kStep]), Acc(a[3 * kStep]));
      const Acc three = op(two, Acc(a[2 * kStep])), four = op(two, last);
      r[0] = T(op(acc, one)), r[kStep] = T(op(acc, two)), r[2 * kStep] = T(op(acc, three));
      acc = op(acc, four);
      r[3 * kStep] = T(acc);
    }
    for (; i < to; i++) out[i * kStep] = T(acc = op(acc, Acc(in[i * kStep])));
  });
}

template <class T, class Acc, class Op>
void scan_integer_lines(const ExternCall& call, const Shape& s, Acc start, const Op& op) {
  call.parallel(s.outer, std::max<int64_t>(1, kGrain / s.n), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; line++) {
      const auto* in = static_cast<const T*>(call.in[0].data) + line * s.n;
      auto* out = static_cast<T*>(call.out[0].data) + line * s.n;
      s.reverse ? scan_integer_line<-1>(in + s.n - 1, out + s.n - 1, s.n, start, op)
                : scan_integer_line<1>(in, out, s.n, start, op);
    }
  });
}

template <class T, class Acc, class Op>
void scan(const ExternCall& call, Acc start, const Op& op) {
  const Shape s = shape_of(call);
  if (s.outer * s.n * s.inner == 0) return;
  if constexpr (std::is_integral_v<T>) {
    if (s.inner == 1) return scan_integer_lines<T>(call, s, start, op);
  }
  if (s.inner == 1) return scan_lines<T>(call, s, start, op);
  const auto* in = static_cast<const T*>(call.in[0].data);
  auto* out = static_cast<T*>(call.out[0].data);
  each_block(call, s, [&](int64_t at, int64_t lines) {
    Acc acc[kBlock];
    std::fill_n(acc, lines, start);
    for (int64_t k = 0; k < s.n; k++) {
      const int64_t row = at + (s.reverse ? s.n - 1 - k : k) * s.inner;
      const auto step = [&](int64_t j, auto count) {
        const T* __restrict from = in + row + j;
        T* __restrict to = out + row + j;
        Acc* __restrict sums = acc + j;
        for (int64_t i = 0; i < count; i++) {
          sums[i] = op(sums[i], Acc(from[i]));
          to[i] = T(sums[i]);
        }
      };
      int64_t j = 0;
      for (; j + kStrip <= lines; j += kStrip) step(j, std::integral_constant<int64_t, kStrip>());
      step(j, lines - j);
      if (k % kBlock == kBlock - 1) look_in_loop();
    }
  });
}

// A NaN stays from its place on. Of equal elements the last counts.
template <class T, class Op>
void extreme(const ExternCall& call, const Op& wins) {
  const Shape s = shape_of(call);
  const auto* in = static_cast<const T*>(call.in[0].data);
  auto* out = static_cast<T*>(call.out[0].data);
  auto* index = static_cast<int64_t*>(call.out[1].data);
  const auto takes = [&wins](T v, T best) { return v != v || (best == best && wins(v, best)); };
  if (s.inner > 1) {
    return each_block(call, s, [&](int64_t at, int64_t lines) {
      T best[kBlock];
      int64_t place[kBlock] = {};
      std::copy_n(in + at, lines, best);
      for (int64_t k = 0; k < s.n; k++) {
        const int64_t row = at + k * s.inner;
        for (int64_t j = 0; j < lines; j++) {
          const T v = in[row + j];
          const bool taken = takes(v, best[j]);
          out[row + j] = best[j] = taken ? v : best[j];
          index[row + j] = place[j] = taken ? k : place[j];
        }
        if (k % kBlock == kBlock - 1) look_in_loop();
      }
    });
  }
  each_block(call, s, [&](int64_t at, int64_t lines) {
    for (int64_t j = at; j < at + lines; j++) {
      T best = in[j];
      int64_t place = 0;
      in_stretches(s.n, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; k++) {
          const T v = in[j + k];
          if (takes(v, best)) best = v, place = k;
          out[j + k] = best;
          index[j + k] = place;
        }
      });
    }
  });
}

template <class F>
void with_type(const ExternCall& call, const F& f) {
  with_element_type(call.in[0].dtype, [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T>) return f(T());
    fail_internal(name(call.op), ": of ", name(call.in[0].dtype));
  });
}

double log_add_exp(double a, double b) {
  const double low = b < a ? b : a, high = b < a ? a : b;
  if (a != a || b != b) return a + b;
  if (low == high && std::isinf(low)) return low;
  return high + std::log1p(std::exp(low - high));
}

}  // namespace

bool scan_supports(DType dtype) { return !is_bool(dtype) && !is_half(dtype); }

void run_scan(const ExternCall& call) {
  with_type(call, [&](auto zero) {
    using T = decltype(zero);
    using Acc = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
    switch (call.op) {
      case OpId::scan_sum: return scan<T>(call, Acc(0), [](Acc a, Acc b) { return Acc(a + b); });
      case OpId::scan_prod: return scan<T>(call, Acc(1), [](Acc a, Acc b) { return Acc(a * b); });
      case OpId::scan_max: return extreme<T>(call, [](T a, T b) { return a >= b; });
      case OpId::scan_min: return extreme<T>(call, [](T a, T b) { return a <= b; });
      case OpId::scan_logsumexp:
        if constexpr (std::is_floating_point_v<T>) return scan<T>(call, -HUGE_VAL, log_add_exp);
        [[fallthrough]];
      default: fail_internal("scan: ", name(call.op));
    }
  });
}

}  // namespace lutra
