// Ops that a host brought. A call of one is text, which stands in a graph and in the key of a kept artifact. It is an
// argument of the ops host_op and host_op_backward.
//
// Invariants:
// 1. Beside elements and numbers, the text has everything that a call's results depend on: name, schema, attributes,
//    results' types. Only the call itself asks the host for them, so passes and other threads need no host.
// 2. The text may be wrong. Its reader checks it and raises.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/dtype.h"

namespace lutra {

// The most floats of a call, which a graph may have as symbols, and the most results of an op.
inline constexpr size_t kMaxHostNumbers = 8, kMaxHostResults = 8;

struct HostArgument {
  enum Kind : uint8_t { kNone, kTensor, kTensors, kNumber, kInt, kInts, kBool, kText } kind = kNone;
  int64_t n = 0;  // kTensors: their number; kInt, kBool: the value
  std::vector<int64_t> ints;
  std::string text;
};

struct HostForm {
  std::vector<HostArgument> arguments;
  bool has_gradient = false;
  // For host_op_backward: the number of the op's results, which of them have a gradient, which of the tensors want one.
  size_t results = 0;
  std::vector<bool> given, wanted;

  size_t tensors() const;  // the number of tensors among the arguments
  size_t numbers() const;
};

struct HostResult {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
};

std::string write_form(const HostForm& form);
HostForm read_form(std::string_view text);
std::string write_results(const std::vector<HostResult>& results);
std::vector<HostResult> read_results(std::string_view text);
// Returns "blur" for "blur(Tensor x) -> Tensor".
std::string_view host_op_name(std::string_view op);

}  // namespace lutra
