// Pooling functions for Lua: the indices are a second result if requested.
#include "vm/bind/functions.h"

namespace lutra {
namespace {

template <OpId plain, OpId with_indices>
LuaResults max_pool(Args& args) {
  const bool indices = args[6].as<bool>();
  args.pop_back();
  const Results results = call_op(indices ? with_indices : plain, args);
  return LuaResults(results.begin(), results.end());
}

constexpr char kMaxPool[] =
    "Tensor input, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1, bool ceil_mode=False, "
    "bool return_indices=False";

template <OpId plain, OpId with_indices>
LuaResults adaptive_max_pool(Args& args) {
  const Results results = call_op(args[2].as<bool>() ? with_indices : plain, {args[0], args[1]});
  return LuaResults(results.begin(), results.end());
}

constexpr char kAdaptiveMaxPool[] = "Tensor input, int[] output_size, bool return_indices=False";

const HostFunction kPoolRows[] = {
    {"max_pool1d", kMaxPool, kFunctionOf, max_pool<OpId::max_pool1d, OpId::max_pool1d_with_indices>},
    {"max_pool2d", kMaxPool, kFunctionOf, max_pool<OpId::max_pool2d, OpId::max_pool2d_with_indices>},
    {"adaptive_max_pool1d", kAdaptiveMaxPool, kBoth,
     adaptive_max_pool<OpId::adaptive_max_pool1d, OpId::adaptive_max_pool1d_with_indices>},
    {"adaptive_max_pool2d", kAdaptiveMaxPool, kBoth,
     adaptive_max_pool<OpId::adaptive_max_pool2d, OpId::adaptive_max_pool2d_with_indices>},
};

}  // namespace

std::span<const HostFunction> pool_rows() { return kPoolRows; }

}  // namespace lutra
