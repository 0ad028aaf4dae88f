// Tests convolutions and their gradients on random shapes against sums in double. The bits are the same on every
// instruction set, in either layout, and for any division of the work.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "ops/core/cpu.h"
#include "ops/extern/cpu/kernels.h"

namespace lutra {
namespace {

struct Shape {
  int n, groups, c, k, h, w, kh, kw, sh, sw, dh, dw, pads[4], oh, ow;
};

struct Array {
  std::vector<float> data;
  ExternView view;
  Array(std::initializer_list<int> sizes, bool channels_last, std::mt19937* random) {
    int64_t n = 1;
    view.dim = int32_t(sizes.size());
    for (int32_t d = view.dim; d-- > 0;) {
      view.sizes[d] = sizes.begin()[d], view.strides[d] = n;
      n *= view.sizes[d];
    }
    const int64_t* s = view.sizes;
    if (channels_last) {
      view.strides[0] = s[1] * s[2] * s[3], view.strides[1] = 1, view.strides[2] = s[3] * s[1], view.strides[3] = s[1];
    }
    data.resize(size_t(n) + 1);
    std::normal_distribution<float> d;
    for (float& x : data) x = random ? d(*random) : 0;
    view.data = data.data();
  }
  float& at(int a, int b, int c, int d) {
    const int64_t* s = view.strides;
    return data[size_t(a * s[0] + b * s[1] + c * s[2] + d * s[3])];
  }
  // Elements in row-major order.
  std::vector<float> values() {
    std::vector<float> out;
    if (view.dim == 1) return {data.begin(), data.end() - 1};
    for (int a = 0; a < view.sizes[0]; a++) {
      for (int b = 0; b < view.sizes[1]; b++) {
        for (int c = 0; c < view.sizes[2]; c++) {
          for (int d = 0; d < view.sizes[3]; d++) out.push_back(at(a, b, c, d));
        }
      }
    }
    return out;
  }
};

Shape random_shape(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return low + int(random() % unsigned(high - low + 1)); };
  Shape s{pick(0, 9), pick(1, 3), pick(1, 20), pick(1, 40), 0,  0, pick(1, 4), pick(1, 4),
          pick(1, 3), pick(1, 3), pick(1, 2),  pick(1, 2),  {}, 0, 0};
  if (random() % 3 == 0) s.groups = pick(2, 140), s.c = s.k = 1, s.n = pick(0, 3);  // each channel with itself
  for (int& p : s.pads) p = pick(0, 2);
  if (random() % 4 == 0) s.kh = s.kw = s.sh = s.sw = 1, s.k = 16 * pick(1, 20), s.pads[0] = s.pads[1] = 0;
  if (random() % 4 == 0) s.k = pick(100, 300);
  s.h = pick(1, 16) + (s.kh - 1) * s.dh, s.w = pick(1, 16) + (s.kw - 1) * s.dw;
  s.oh = (s.h + s.pads[0] + s.pads[2] - (s.kh - 1) * s.dh - 1) / s.sh + 1;
  s.ow = (s.w + s.pads[1] + s.pads[3] - (s.kw - 1) * s.dw - 1) / s.sw + 1;
  return s;
}

// One by one from the last, or in pieces of three.
void backwards(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& body) {
  for (int64_t i = n; i-- > 0;) body(i, i + 1);
}
void threes(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& body) {
  for (int64_t i = 0; i < n; i += 3) body(i, std::min(i + 3, n));
}

struct Operands {
  Shape s;
  Array x, y, w, b;
  Operands(const Shape& s, std::mt19937& random)
      : s(s),
        x({s.n, s.groups * s.c, s.h, s.w}, false, &random),
        y({s.n, s.groups * s.k, s.oh, s.ow}, false, &random),
        w({s.groups * s.k, s.c, s.kh, s.kw}, false, &random),
        b({s.groups * s.k}, false, &random) {}
};

using Answers = std::vector<std::vector<float>>;  // the map, then the gradients of image, weight and bias

Array laid_out(Array& from, bool channels_last) {
  const int64_t* s = from.view.sizes;
  Array to({int(s[0]), int(s[1]), int(s[2]), int(s[3])}, channels_last, nullptr);
  for (int a = 0; a < s[0]; a++) {
    for (int b = 0; b < s[1]; b++) {
      for (int c = 0; c < s[2]; c++) {
        for (int d = 0; d < s[3]; d++) to.at(a, b, c, d) = from.at(a, b, c, d);
      }
    }
  }
  return to;
}

Answers run(Operands& o, ExternIsa isa, bool channels_last, ParallelFor parallel) {
  const Shape& s = o.s;
  Array x = laid_out(o.x, channels_last), y = laid_out(o.y, channels_last);
  Array map({s.n, s.groups * s.k, s.oh, s.ow}, channels_last, nullptr);
  Array gx({s.n, s.groups * s.c, s.h, s.w}, channels_last, nullptr),
      gw({s.groups * s.k, s.c, s.kh, s.kw}, false, nullptr);
  Array gb({s.groups * s.k}, false, nullptr);
  const int64_t ints[] = {0, 0, 0, 0, s.sh, s.sw, s.pads[0], s.pads[1], s.pads[2], s.pads[3], s.dh, s.dw, s.groups};
  const auto call = [&](OpId op, std::vector<ExternView> in, std::vector<ExternView> out, size_t from) {
    ExternCall c;
    c.op = op, c.in = in, c.out = out, c.ints = std::span<const int64_t>(ints).subspan(from);
    c.isa = isa, c.parallel = parallel;
    run_extern(c);
  };
  call(OpId::convolution, {x.view, o.w.view, o.b.view}, {map.view}, 4);
  call(OpId::convolution_input, {y.view, o.w.view}, {gx.view}, 0);
  call(OpId::convolution_weight, {y.view, x.view}, {gw.view, gb.view}, 0);
  return {map.values(), gx.values(), gw.values(), gb.values()};
}

// Sums in double over all taps.
std::vector<std::vector<double>> expected(Operands& o) {
  const Shape& s = o.s;
  std::vector<std::vector<double>> r = {std::vector<double>(o.y.data.size()), std::vector<double>(o.x.data.size()),
                                        std::vector<double>(o.w.data.size()), std::vector<double>(o.b.data.size())};
  const auto index = [](const Array& a, int i, int j, int k, int l) {
    const int64_t* t = a.view.strides;
    return size_t(i * t[0] + j * t[1] + k * t[2] + l * t[3]);
  };
  for (int n = 0; n < s.n; n++) {
    for (int k = 0; k < s.groups * s.k; k++) {
      for (int p = 0; p < s.oh * s.ow; p++) {
        const size_t at = index(o.y, n, k, p / s.ow, p % s.ow);
        const double g = o.y.data[at];
        r[0][at] = o.b.data[size_t(k)], r[3][size_t(k)] += g;
        for (int t = 0; t < s.c * s.kh * s.kw; t++) {
          const int c = t / (s.kh * s.kw), u = t / s.kw % s.kh, v = t % s.kw;
          const int h = p / s.ow * s.sh - s.pads[0] + u * s.dh, w = p % s.ow * s.sw - s.pads[1] + v * s.dw;
          if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
          const size_t xi = index(o.x, n, k / s.k * s.c + c, h, w), wi = index(o.w, k, c, u, v);
          r[0][at] += double(o.x.data[xi]) * o.w.data[wi];
          r[1][xi] += g * o.w.data[wi], r[2][wi] += g * o.x.data[xi];
        }
      }
    }
  }
  return r;
}

}  // namespace

TEST_CASE("convolutions are right, and their bits do not depend on how they run", "[extern]") {
  std::mt19937 random(11);
  for (int round = 0; round < 100; round++) {
    Operands o(random_shape(random), random);
    INFO("round " << round);
    const Answers answers = run(o, ExternIsa::kBase, false, nullptr);
    const auto wanted = expected(o);
    double worst = 0;
    for (size_t i = 0; i < 4; i++) {
      for (size_t j = 0; j < answers[i].size(); j++) {
        worst = std::max(worst, std::fabs(answers[i][j] - wanted[i][j]) / (1 + std::fabs(wanted[i][j])));
      }
    }
    CHECK(worst < 2e-4);
    CHECK(run(o, ExternIsa::kBase, true, backwards) == answers);
    if (cpu::has_avx2()) CHECK(run(o, ExternIsa::kAvx2, false, threes) == answers);
    if (cpu::has_avx512()) CHECK(run(o, ExternIsa::kAvx512, true, threes) == answers);
  }
}

}  // namespace lutra
