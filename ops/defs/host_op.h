// Ops that a host brought: what a call of one is, as text that stands in a graph and in the key of a kept artifact. The
// ops host_op and host_op_backward have it as arguments.
//
// Invariants:
// 1. The text says all that a call's results depend on beside elements and numbers: name, schema, attributes, results'
//    types. Nobody but the call asks the host for them, so passes and other threads need no host.
// 2. Text may lie: what reads it checks it, and raises.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/dtype.h"

namespace lutra {

// Floats of a call, of which a graph may have symbols; results of an op.
inline constexpr size_t kMostHostNumbers = 8, kMostHostResults = 8;

struct HostArgument {
  enum Kind : uint8_t { kNone, kTensor, kTensors, kNumber, kInt, kInts, kBool, kText } kind = kNone;
  int64_t n = 0;  // kTensors: how many; kInt, kBool: the value
  std::vector<int64_t> ints;
  std::string text;
};

struct HostForm {
  std::vector<HostArgument> arguments;
  bool has_gradient = false;
  // Of host_op_backward: results of the op, which of them have a gradient, which of the tensors want one.
  size_t results = 0;
  std::vector<bool> given, wanted;

  size_t tensors() const;  // of the arguments
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
// "blur" of "blur(Tensor x) -> Tensor".
std::string_view host_op_name(std::string_view op);

}  // namespace lutra
