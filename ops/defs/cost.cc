// The cost of elements of special functions, and the flops of contractions: a row for each op with kContraction.
#include "ops/defs/cost.h"

#include <functional>
#include <numeric>

namespace lutra {
namespace {

double product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1.0, std::multiplies<double>());
}
// Returns the products for each element of the convolved side: input channels of a group times the window.
double window(const std::vector<int64_t>& weight) {
  return weight.empty() || weight[0] == 0 ? 0 : product(weight) / double(weight[0]);
}
// Returns the size of a dimension, counted from the last one.
double from_end(const std::vector<int64_t>& sizes, size_t d) {
  return sizes.size() <= d ? 0 : double(sizes[sizes.size() - 1 - d]);
}

}  // namespace

int element_work(OpId op) {
  switch (op) {
    // Series of tens of terms.
    case OpId::lgamma:
    case OpId::digamma:
    case OpId::polygamma:
    case OpId::mvlgamma:
    case OpId::i0:
    case OpId::i0e:
    case OpId::i1:
    case OpId::i1e: return 600;
    default: return info(op).has(kHeavy) ? 64 : 1;
  }
}

double flops(OpId op, const SizeLists& in, const SizeLists& out) {
  switch (op) {
    case OpId::mm:
    case OpId::bmm:
    case OpId::weight_int8pack_mm:
    case OpId::weight_int4pack_mm: return 2 * product(out[0]) * from_end(in[0], 0);
    case OpId::convolution: return 2 * product(out[0]) * window(in[1]);
    case OpId::convolution_input: return 2 * product(in[0]) * window(in[1]);
    case OpId::convolution_weight: return 2 * product(in[0]) * window(out[0]);
    // query and key: every query with every key, once for the scores and once for the values.
    case OpId::flash_attention: return 4 * product(in[0]) * from_end(in[1], 1);
    // The scores again, and the gradients of scores, values, queries and keys.
    case OpId::flash_attention_backward: return 10 * product(in[1]) * from_end(in[2], 1);
    default: return 0;
  }
}

}  // namespace lutra
