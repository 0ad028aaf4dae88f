// The simple kernels of convolutions against the CPU's; copies between layouts.
#include <catch2/catch.hpp>
#include <cstring>

#include "ops/extern/cuda/launch.h"
#include "tests/cuda_extern/calls.h"

namespace lutra::cuda {
namespace {

struct ConvShape {
  int64_t n, groups, c, k, h, w, kh, kw;
  std::vector<int64_t> attributes;  // stride, padding, dilation
};

void check_shape(HostMachine& m, DType t, const ConvShape& s, bool last) {
  INFO(name(t) << s.groups << s.c << s.k << last);
  const auto& a = s.attributes;
  const int64_t oh = (s.h + a[2] + a[4] - (s.kh - 1) * a[6] - 1) / a[0] + 1;
  const int64_t ow = (s.w + a[3] + a[5] - (s.kw - 1) * a[7] - 1) / a[1] + 1;
  const std::vector<int> order = last ? std::vector<int>{0, 2, 3, 1} : std::vector<int>{};
  const std::vector<int64_t> image = {s.n, s.groups * s.c, s.h, s.w}, map = {s.n, s.groups * s.k, oh, ow};
  const std::vector<int64_t> weight = {s.groups * s.k, s.c, s.kh, s.kw};
  const Operand x = random_operand(t, image, -1, 1, order), w = random_operand(t, weight, -1, 1);
  const Operand b = random_operand(t, {weight[0]}, -1, 1), y = random_operand(t, map, -1, 1, order);
  std::vector<int64_t> ints = a, sized = image, weight_sized = weight;
  ints.push_back(s.groups);
  sized.insert(sized.end(), ints.begin(), ints.end()),
      weight_sized.insert(weight_sized.end(), ints.begin(), ints.end());
  const double tolerance = t == DType::kFloat64 ? 1e-12 : t == DType::kFloat32 ? 1e-5 : 1e-2;
  const Operand made = make_operand(t, map, order);
  CHECK(difference(m, {OpId::convolution, {x, w, b}, {made}, ints, {}, {}}) < tolerance);
  CHECK(difference(m, {OpId::convolution, {x, w, {}}, {made}, ints, {}, {}}) < tolerance);
  CHECK(difference(m, {OpId::convolution_input, {y, w}, {make_operand(t, image, order)}, sized, {}, {}}) < tolerance);
  const Operand dw = make_operand(t, weight), db = make_operand(t, {weight[0]});
  CHECK(difference(m, {OpId::convolution_weight, {y, x}, {dw, db}, weight_sized, {}, {}}) < 10 * tolerance);
  if (t == DType::kFloat32) {
    const Operand none = make_operand(t, {0});
    CHECK(difference(m, {OpId::convolution_weight, {y, x}, {dw, none}, weight_sized, {}, {}}) < 10 * tolerance);
  }
}

// Gradients by weight and bias, with and without a bias; whole numbers are products without error.
void check_weight(HostMachine& m, const ConvShape& s, bool last) {
  INFO(s.c << " " << s.k << last);
  const auto& a = s.attributes;
  const int64_t oh = (s.h + a[2] + a[4] - (s.kh - 1) * a[6] - 1) / a[0] + 1;
  const int64_t ow = (s.w + a[3] + a[5] - (s.kw - 1) * a[7] - 1) / a[1] + 1;
  const std::vector<int> order = last ? std::vector<int>{0, 2, 3, 1} : std::vector<int>{};
  Operand x = random_operand(DType::kFloat32, {s.n, s.c, s.h, s.w}, -8, 8, order);
  Operand y = random_operand(DType::kFloat32, {s.n, s.k, oh, ow}, -8, 8, order);
  for (Operand* o : {&x, &y}) {
    auto* p = reinterpret_cast<float*>(o->bytes.data());
    for (int64_t i = 0; i < o->view.numel(); i++) p[i] = std::round(p[i]);
  }
  std::vector<int64_t> ints = {s.k, s.c, s.kh, s.kw};
  ints.insert(ints.end(), a.begin(), a.end()), ints.push_back(1);
  m.launches.clear();
  for (int64_t biases : {s.k, int64_t(0)}) {
    const Operand dw = make_operand(DType::kFloat32, {s.k, s.c, s.kh, s.kw}),
                  db = make_operand(DType::kFloat32, {biases});
    CHECK(difference(m, {OpId::convolution_weight, {y, x}, {dw, db}, ints, {}, {}}) == 0);
  }
  CHECK(m.launches["weight_ranges"] == 2);
}

TEST_CASE("cuda extern: convolutions without cuDNN") {
  HostMachine m;
  for (DType t : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    for (bool last : {false, true}) {
      check_shape(m, t, {2, 1, 4, 4, 9, 8, 3, 3, {1, 1, 1, 1, 1, 1, 1, 1}}, last);
      check_shape(m, t, {1, 2, 2, 3, 10, 7, 3, 2, {2, 1, 0, 1, 1, 0, 1, 2}}, last);
      check_shape(m, t, {3, 4, 1, 2, 1, 12, 1, 5, {1, 3, 0, 2, 0, 3, 1, 1}}, last);
    }
  }
}

// Cases of conv_few.cc: many output channels in chunks, tails, strides, dilations, uneven padding, bands of rows.
TEST_CASE("cuda extern: convolutions of few channels") {
  HostMachine m;
  for (bool last : {false, true}) {
    check_shape(m, DType::kFloat32, {2, 1, 1, 32, 9, 11, 3, 3, {1, 1, 1, 1, 1, 1, 1, 1}}, last);
    check_shape(m, DType::kFloat32, {3, 1, 3, 72, 13, 12, 3, 3, {2, 2, 1, 1, 1, 1, 1, 1}}, last);
    check_shape(m, DType::kFloat32, {1, 1, 2, 5, 17, 40, 2, 5, {3, 1, 0, 3, 2, 0, 2, 3}}, last);
  }
  check_shape(m, DType::kFloat64, {4, 1, 1, 64, 130, 130, 1, 2, {1, 1, 0, 1, 0, 0, 1, 1}}, true);
  for (DType t : {DType::kFloat64, DType::kBFloat16}) {
    check_shape(m, t, {1, 1, 2, 40, 9, 12, 3, 3, {2, 2, 1, 1, 1, 1, 1, 1}}, true);
  }
}

// Cases of conv_depthwise.cc: chunks of channels, tails, strides, dilations, uneven padding.
TEST_CASE("cuda extern: convolutions of each channel by itself") {
  HostMachine m;
  for (bool last : {false, true}) {
    check_shape(m, DType::kFloat32, {2, 36, 1, 1, 9, 11, 3, 3, {1, 1, 1, 1, 1, 1, 1, 1}}, last);
    check_shape(m, DType::kFloat32, {1, 135, 1, 1, 12, 13, 3, 3, {2, 2, 1, 1, 1, 1, 1, 1}}, last);
    check_shape(m, DType::kFloat32, {2, 5, 1, 1, 17, 10, 2, 5, {3, 1, 0, 3, 2, 0, 2, 3}}, last);
  }
  for (DType t : {DType::kFloat64, DType::kBFloat16}) {
    check_shape(m, t, {1, 12, 1, 1, 9, 11, 3, 3, {1, 2, 1, 1, 1, 1, 1, 1}}, true);
  }
}

// Cases of conv_weight.cc: tails of input and output channels, of pixels; strides, dilations; operands rounded to TF32.
TEST_CASE("cuda extern: gradients of small weights") {
  HostMachine m;
  for (bool last : {false, true}) {
    check_weight(m, {5, 1, 16, 68, 15, 14, 3, 3, {1, 1, 1, 1, 1, 1, 1, 1}}, last);
    check_weight(m, {8, 1, 36, 20, 25, 22, 1, 1, {2, 2, 0, 0, 0, 0, 1, 1}}, last);
    check_weight(m, {3, 1, 32, 64, 22, 23, 2, 5, {1, 1, 0, 3, 2, 0, 2, 2}}, last);
  }
}

TEST_CASE("cuda extern: copies between layouts of images") {
  HostMachine m;
  const std::vector<int> rows, last = {0, 2, 3, 1};
  for (DType t : {DType::kUInt8, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{2, 40, 9, 5}, {1, 33, 8, 8}, {3, 3, 9, 9}, {2, 9, 1, 70}}) {
      for (bool back : {false, true}) {
        INFO(name(t) << sizes[1] << back);
        Operand from = random_operand(t, sizes, 0, 100, back ? last : rows);
        Operand to = make_operand(t, sizes, back ? rows : last);
        const ExternView a = from.on(from.bytes), b = to.on(to.bytes);
        const ExternCall call;
        Launcher l(call);
        copy_view(l, a, b);
        int64_t wrong = 0;
        for (int64_t i = 0; i < a.numel(); i++) {
          int64_t rest = i, at[2] = {0, 0};
          for (int d = 4; d-- > 0; rest /= sizes[size_t(d)]) {
            at[0] += rest % sizes[size_t(d)] * a.strides[d], at[1] += rest % sizes[size_t(d)] * b.strides[d];
          }
          const size_t size = size_of(t);
          wrong += std::memcmp(static_cast<char*>(a.data) + size_t(at[0]) * size,
                               static_cast<char*>(b.data) + size_t(at[1]) * size, size) != 0;
        }
        CHECK(wrong == 0);
      }
    }
  }
}

}  // namespace
}  // namespace lutra::cuda
