// Tests attention's kernels against the CPU's, in float32 and on (emulated) tensor cores.
#include <catch2/catch.hpp>

#include "ops/extern/precision.h"
#include "tests/cuda_extern/calls.h"

namespace lutra::cuda {
namespace {

// (batch, head, position, feature), positions outermost but for the batch.
Operand by_position(DType t, std::vector<int64_t> sizes) { return make_operand(t, sizes, {0, 2, 1, 3}); }

struct AttentionShape {
  int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
};

void check_shape(HostMachine& m, const AttentionShape& s, bool causal, int mask, double scale, double tolerance,
                 DType t = DType::kFloat32) {
  INFO(s.heads << " " << s.queries << " " << s.keys << " " << s.dim << " " << causal << mask << name(t));
  const Operand q = random_operand(t, {s.batch, s.heads, s.queries, s.dim}, -1, 1, {0, 2, 1, 3});
  const Operand k = random_operand(t, {s.batch, s.kv_heads, s.keys, s.dim}, -1, 1);
  const Operand v = random_operand(t, {s.batch, s.kv_heads, s.keys, s.value_dim}, -1, 1, {0, 2, 1, 3});
  Operand hidden;
  if (mask) {
    hidden = random_operand(mask == 1 ? DType::kBool : DType::kFloat32, {1, 1, s.queries, s.keys}, 0, 1);
    hidden.view.sizes[0] = s.batch, hidden.view.sizes[1] = s.heads;
    hidden.view.strides[0] = hidden.view.strides[1] = 0;
    if (mask == 1) std::fill_n(hidden.bytes.begin(), s.keys, 0);  // the first query sees no key
  }
  Case forward{OpId::flash_attention,
               {q, k, v, hidden},
               {by_position(t, {s.batch, s.heads, s.queries, s.value_dim}),
                make_operand(DType::kFloat32, {s.batch, s.heads, s.queries})},
               {causal},
               {scale},
               {}};
  CHECK(difference(m, forward, nullptr, is_half(t)) < tolerance);
  std::string error;
  const Case reference = widened(forward);
  const auto results = reference.run(DeviceType::kCPU, error);
  Operand out = reference.out[0], lse = reference.out[1];
  out.bytes = results[0], lse.bytes = results[1];
  out = converted(out, t), lse.view.data = lse.bytes.data();
  const Operand g = random_operand(t, {s.batch, s.heads, s.queries, s.value_dim}, -1, 1);
  const Case backward{
      OpId::flash_attention_backward,
      {g, q, k, v, out, lse, hidden},
      {by_position(t, {s.batch, s.heads, s.queries, s.dim}), by_position(t, {s.batch, s.kv_heads, s.keys, s.dim}),
       by_position(t, {s.batch, s.kv_heads, s.keys, s.value_dim})},
      {causal},
      {scale},
      {}};
  CHECK(difference(m, backward, nullptr, is_half(t)) < 4 * tolerance);
}

TEST_CASE("cuda extern: attention") {
  HostMachine m;
  for (bool cores : {false, true}) {
    set_matmul_precision(cores ? MatmulPrecision::kHigh : MatmulPrecision::kHighest);
    const double tolerance = cores ? 3e-3 : 2e-6;
    check_shape(m, {2, 2, 2, 40, 40, 20, 20}, false, 0, NAN, tolerance);
    check_shape(m, {1, 2, 2, 70, 70, 32, 24}, true, 0, 0.3, tolerance);
    check_shape(m, {1, 4, 2, 33, 50, 64, 64}, true, 0, NAN, tolerance);
    check_shape(m, {2, 4, 2, 140, 170, 32, 32}, true, 0, NAN, tolerance);  // blocks of 128 rows
    check_shape(m, {2, 2, 1, 20, 45, 16, 40}, false, 1, NAN, tolerance);
    check_shape(m, {1, 1, 1, 9, 33, 100, 3}, false, 2, NAN, tolerance);
    check_shape(m, {1, 1, 1, 5, 6, 4, 0}, false, 0, NAN, tolerance);  // there is nothing to read
    check_shape(m, {1, 1, 1, 5, 6, 0, 4}, false, 0, 0.3, tolerance);
  }
  set_matmul_precision(MatmulPrecision::kHighest);
}

TEST_CASE("cuda extern: attention of half types") {
  HostMachine m;
  for (const DType t : {DType::kBFloat16, DType::kFloat16}) {
    const double tolerance = t == DType::kBFloat16 ? 2e-2 : 3e-3;
    check_shape(m, {2, 2, 2, 40, 40, 20, 20}, false, 0, NAN, tolerance, t);
    check_shape(m, {1, 2, 2, 70, 70, 32, 24}, true, 0, 0.3, tolerance, t);
    check_shape(m, {1, 4, 2, 33, 150, 64, 64}, true, 0, NAN, tolerance, t);
    check_shape(m, {2, 4, 2, 140, 170, 64, 64}, true, 0, NAN, tolerance, t);  // blocks of 128 rows
    check_shape(m, {2, 2, 1, 20, 45, 16, 40}, false, 1, NAN, tolerance, t);
    check_shape(m, {1, 1, 1, 20, 75, 100, 3}, false, 2, NAN, tolerance, t);
    check_shape(m, {1, 1, 1, 20, 33, 130, 256}, true, 0, NAN, tolerance, t);
    check_shape(m, {1, 1, 1, 20, 6, 4, 0}, false, 0, NAN, tolerance, t);  // there is nothing to read
    check_shape(m, {1, 1, 1, 20, 6, 0, 4}, false, 0, 0.3, tolerance, t);
  }
}

TEST_CASE("cuda extern: attention of few queries") {
  HostMachine m;
  check_shape(m, {2, 4, 2, 3, 600, 24, 24}, false, 0, NAN, 3e-6);  // pieces of 64 keys, as of all that have more
  check_shape(m, {1, 4, 1, 2, 530, 24, 24}, false, 1, 0.3, 3e-6);
  check_shape(m, {1, 2, 2, 5, 9, 20, 20}, true, 0, NAN, 3e-6);
  check_shape(m, {1, 2, 1, 4, 45, 33, 33}, false, 2, NAN, 3e-6);
  check_shape(m, {1, 2, 1, 1, 70, 130, 130}, false, 1, NAN, 3e-6);
  CHECK(m.launches["attention_few"] == 5);
  CHECK(m.launches["attention_join"] == 3);
  CHECK(m.launches["attention_forward"] == 0);
}

// One NaN among the queries or the keys: all that a query gives is NaN, or what it gives without it.
void check_nan(HostMachine& m, int64_t queries, int64_t keys, bool in_keys, int64_t at, int64_t hidden_keys) {
  INFO(queries << " " << keys << " " << in_keys << at);
  const DType t = DType::kFloat32;
  Operand q = random_operand(t, {1, 2, queries, 24}, -1, 1), k = random_operand(t, {1, 2, keys, 24}, -1, 1);
  const Operand v = random_operand(t, {1, 2, keys, 24}, -1, 1);
  reinterpret_cast<float*>((in_keys ? k : q).bytes.data())[at * 24 + 5] = NAN;
  Operand mask;
  if (hidden_keys) {
    mask = random_operand(DType::kBool, {1, 1, queries, keys}, 1, 1);
    mask.view.sizes[1] = 2, mask.view.strides[1] = 0;
    for (int64_t row = 0; row < queries; row++) std::fill_n(mask.bytes.begin() + row * keys, hidden_keys, 0);
  }
  const Case c{OpId::flash_attention,
               {q, k, v, mask},
               {make_operand(t, {1, 2, queries, 24}), make_operand(t, {1, 2, queries})},
               {false},
               {NAN},
               {}};
  CHECK(difference(m, c) < 3e-6);
  std::string error;
  const auto got = c.run(DeviceType::kCUDA, error);
  const bool seen = !in_keys || at >= hidden_keys;
  if (hidden_keys < keys) CHECK(std::isnan(element_at(c.out[0].view, got[0], in_keys ? 0 : at * 24)) == seen);
}

TEST_CASE("cuda extern: a NaN in attention of few queries") {
  HostMachine m;
  for (const int64_t keys : {40, 1100}) {  // one piece of the keys, and three
    check_nan(m, 3, keys, false, 1, 0);
    check_nan(m, 1, keys, false, 0, 0);
    check_nan(m, 2, keys, false, 1, keys - 3);  // pieces that are hidden as a whole
    check_nan(m, 2, keys, false, 1, keys);
    check_nan(m, 2, keys, true, keys - 2, 0);
    check_nan(m, 2, keys, true, keys - 2, keys - 5);
    check_nan(m, 2, keys, true, 4, 20);
  }
  CHECK(m.launches["attention_forward"] == 0);
}

}  // namespace
}  // namespace lutra::cuda
