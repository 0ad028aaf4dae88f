// Inputs that share memory, one of which is written: their memory is one input of the graph, and they are views of it.
#include "vm/capture/trace/memory.h"

#include <algorithm>
#include <limits>

#include "ops/core/resize.h"
#include "ops/defs/on_parts.h"

namespace lutra {
namespace {

int64_t end_of(const Tensor& t) { return extent(t->offset, t->sizes, t->strides); }

bool has_no_gradient(const Tensor& t) {
  return !t->requires_grad && !(t->base && t->base->requires_grad) && !has_cells(t);
}

}  // namespace

std::optional<StorageRange> memory_of_inputs(const Trace& t, const Storage* storage) {
  constexpr int64_t kSparse = 8, kLarge = 65536;  // if more than copies is written, the graph writes the whole range
  int64_t first = std::numeric_limits<int64_t>::max(), end = 0, elements = 0;
  std::optional<DType> dtype;
  for (const Trace::TensorInput& in : t.inputs) {
    if (in.real->storage.get() != storage) continue;
    const bool fits =
        in.source && in.source->kind != SourceKind::kGrad && has_no_gradient(in.real) && !is_packed(in.real->dtype);
    if (!fits || (dtype && *dtype != in.real->dtype)) return std::nullopt;
    dtype = in.real->dtype;
    first = std::min(first, in.real->offset.hint);
    end = std::max(end, end_of(in.real));
    elements += in.real->numel().hint;
  }
  if (end > std::numeric_limits<int>::max() || end - first > kSparse * elements) return std::nullopt;
  for (const auto& node : t.graph->nodes) {
    if (end - first <= kLarge || !node->inplace || node->is_copy()) continue;
    const auto in = t.input_of_storage.find(node->args[0].tensor()->storage.get());
    if (in != t.input_of_storage.end() && t.inputs[size_t(in->second)].real->storage.get() == storage)
      return std::nullopt;
  }
  return StorageRange{first, std::max<int64_t>(end - first, 0)};
}

int Trace::memory_input(const Tensor& real, const Source* source, const StorageRange& range) {
  for (size_t i = 0; i < inputs.size(); i++) {
    if (inputs[i].memory && inputs[i].real->storage == real->storage) return int(i);
  }
  const int input = int(graph->inputs.size());
  const Tensor whole = alias(real, {range.count}, {1}, range.first);
  const Tensor fake =
      graph->add_input("memory of " + source->text, whole->sizes, whole->strides, real->dtype, real->device());
  inputs.push_back({fake, whole, source, true, Tensor(), false, true, {}, true});
  input_of_fake[fake.get()] = input;
  input_of_storage[fake->storage.get()] = input;
  program.tensors.push_back(spec_of(whole, fake));
  program.tensor_sources.push_back(source);
  return input;
}

int Trace::add_view_input(const Tensor& real, const Source* source, const StorageRange& range) {
  const int64_t first = real->offset.hint - range.first;
  const int memory = memory_input(real, source, range);
  const Tensor whole = inputs[size_t(memory)].fake;
  const bool fits = first >= 0 && end_of(real) <= range.first + range.count && real->dtype == whole->dtype;
  if (!fits || !has_no_gradient(real)) stop(Break::shared_memory);
  const int input = int(graph->inputs.size());
  graph->add_input(source->text, real->sizes, real->strides, real->dtype, real->device());
  recorder.set_location(file(), line());
  // A numeric offset of as_strided would count from the beginning of the storage, not of this memory.
  Args part{whole, Scalar::of_int(0), Scalar::of_int(first), Scalar::of_int(range.count), Scalar::of_int(1)};
  const Tensor from = first ? recorder.call(find_op("slice"), part)[0] : whole;
  Args args{from, real->sizes, real->strides, Value()};
  const Tensor fake = recorder.call(find_op("as_strided"), args)[0];
  fake->base = Tensor(), fake->view = nullptr;
  inputs.push_back({fake, real, source, false, Tensor(), false, false, {}});
  input_of_real[real.get()] = input;
  input_of_fake[fake.get()] = input;
  program.tensors.push_back(spec_of(real, fake));
  program.tensors.back().in_shared_memory = true;
  program.tensor_sources.push_back(source);
  return input;
}

}  // namespace lutra
