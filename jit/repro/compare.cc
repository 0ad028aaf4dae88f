// Compares the bits of two runs.
#include "jit/repro/compare.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "jit/device/backend.h"
#include "ops/core/element_types.h"
#include "ops/core/tensor_type.h"

namespace lutra {
namespace {

// Returns a tensor whose memory the host can read, if it has memory.
Tensor on_host(const Tensor& t) {
  if (backend_of(t->device()).has_host_memory() || !t->storage->data) return t;
  Tensor copy = alias(t, t->sizes, t->strides, t->offset);
  copy->storage = allocate(t->storage->nbytes, Device());
  copy_bytes(copy->storage->data, Device(), t->storage->data, t->device(), t->storage->nbytes);
  return copy;
}

template <class T>
bool is_nan(const T& v) {
  if constexpr (kIsComplex<T>) {
    return std::isnan(float(v.re)) || std::isnan(float(v.im));
  } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, Bool8> || std::is_same_v<T, Int4>) {
    return false;
  } else {
    return std::isnan(double(float(v)));
  }
}

// Returns the shortest text that reads back as the same number.
template <class T>
std::string number(T v) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, v).ptr};
}

template <class T>
std::string text_of(const T& v) {
  if constexpr (kIsComplex<T>) {
    return text_of(v.re) + (std::signbit(double(v.im)) ? "" : "+") + text_of(v.im) + "i";
  } else if constexpr (std::is_same_v<T, Bool8>) {
    return v.v ? "true" : "false";
  } else if constexpr (std::is_same_v<T, Int4>) {
    return str("the pair ", int(v.pair));
  } else if constexpr (std::is_integral_v<T>) {
    return str(+v);
  } else if constexpr (std::is_same_v<T, double>) {
    return number(v);
  } else {
    return number(float(v));
  }
}

template <class T>
bool same_part(const T& a, const T& b) {
  if (std::memcmp(&a, &b, sizeof a) == 0) return true;
  if constexpr (kIsComplex<T>) {
    return same_part(a.re, b.re) && same_part(a.im, b.im);
  } else {
    return is_nan(a) && is_nan(b);
  }
}

int64_t count(const Tensor& t) {
  int64_t n = 1;
  for (SymInt s : t->sizes) n *= s.hint;
  return n;
}

std::string position_text(const Tensor& t, int64_t linear) {
  std::vector<int64_t> at(t->sizes.size());
  for (size_t d = at.size(); d-- > 0;) at[d] = linear % t->sizes[d].hint, linear /= t->sizes[d].hint;
  std::string text;
  for (int64_t i : at) text += (text.empty() ? "" : ", ") + std::to_string(i);
  return "{" + text + "}";
}

int64_t offset_of(const Tensor& t, int64_t linear) {
  int64_t offset = 0;
  for (size_t d = t->sizes.size(); d-- > 0;) {
    offset += linear % t->sizes[d].hint * t->strides[d].hint;
    linear /= t->sizes[d].hint;
  }
  return offset;
}

// Returns the first element that differs.
std::optional<std::string> element_difference(const Tensor& compiled, const Tensor& eager) {
  const Tensor a = on_host(compiled), b = on_host(eager);
  return with_stored_type(a->dtype, [&]<class T>() -> std::optional<std::string> {
    // packed elements are compared by the byte
    const int64_t n = is_packed(a->dtype) ? bytes_of(a->dtype, count(a)) : count(a);
    if (n == 0) return {};
    const T *x = a->data_as<T>(), *y = b->data_as<T>();
    for (int64_t i = 0; i < n; i++) {
      const T &p = x[is_packed(a->dtype) ? i : offset_of(a, i)], &q = y[is_packed(a->dtype) ? i : offset_of(b, i)];
      if (same_part(p, q)) continue;
      return str("element ", position_text(a, i), " is ", text_of(p), " compiled, ", text_of(q), " in eager");
    }
    return {};
  });
}

std::optional<std::string> tensor_difference(const Tensor& compiled, const Tensor& eager) {
  if (!compiled || !eager) {
    if (!compiled && !eager) return {};
    return str("it is ", compiled ? "a tensor" : "None", " compiled, ", eager ? "a tensor" : "None", " in eager");
  }
  if (compiled->dtype != eager->dtype || !same_values(compiled->sizes, eager->sizes)) {
    return str("it is ", describe(compiled), " compiled, ", describe(eager), " in eager");
  }
  return element_difference(compiled, eager);
}

std::optional<std::string> value_difference(const Value& compiled, const Value& eager) {
  if (compiled.v.index() != eager.v.index()) return str("it is ", describe(compiled), " compiled, ", describe(eager));
  if (compiled.is<Tensor>()) return tensor_difference(compiled.as<Tensor>(), eager.as<Tensor>());
  if (!compiled.is<Scalar>()) return {};
  const double a = compiled.as<Scalar>().to_double(), b = eager.as<Scalar>().to_double();
  if (same_part(a, b)) return {};
  return str("it is ", number(a), " compiled, ", number(b), " in eager");
}

// Returns the input whose memory a tensor uses; -1: none.
int memory_of(const Value& v, const std::vector<Tensor>& inputs) {
  for (size_t i = 0; v.is<Tensor>() && v.as<Tensor>() && i < inputs.size(); i++) {
    if (inputs[i]->storage == v.as<Tensor>()->storage) return int(i);
  }
  return -1;
}

// Returns the size of the value that a node allocated the memory for.
int64_t bytes_of_base(const Graph& graph, const Ref<Storage>& memory) {
  for (const auto& n : graph.nodes) {
    for (const Tensor& t : n->results) {
      if (t->storage == memory) return bytes_of(t->dtype, count(t));
    }
  }
  return 0;
}

// Returns true if the graph allocates the value's memory without elements and never fills it completely. Nobody may
// rely on its contents.
bool is_undefined(const Graph& graph, const Value& v) {
  if (!v.is<Tensor>() || !v.tensor()) return false;
  const Ref<Storage>& memory = v.tensor()->storage;
  bool undefined = false;
  for (const auto& n : graph.nodes) {
    const bool writes = n->inplace || n->is_copy();
    const Tensor& t = writes ? n->args[0].as<Tensor>() : n->results[0];
    if (t->storage != memory) continue;
    if (!writes && n->op == OpId::empty) undefined = true;
    if (writes && bytes_of(t->dtype, count(t)) >= bytes_of_base(graph, memory)) undefined = false;
  }
  return undefined;
}

std::string place_text(const Graph& graph, size_t output) {
  const Value& v = graph.outputs[output];
  if (!v.is<Tensor>() || !v.tensor() || v.tensor()->node->is_input()) return str("result ", output);
  const Node& n = *v.tensor()->node;
  return str("result ", output, " (", name(n.op), n.file ? str(", ", n.file, ":", n.line) : "", ")");
}

}  // namespace

Tensor Copies::of(const Tensor& t) {
  auto& [original, copied] = storages_[t->storage.get()];
  if (!copied) {
    original = copied = t->storage;
    const Storage& from = *original;
    // Without memory: it was freed (x:free()), or all backwards that read it are spent. Reading it throws, as before.
    if (from.data) copied = allocate(from.nbytes, from.device);
    if (from.data) copy_bytes(copied->data, from.device, from.data, from.device, from.nbytes);
  }
  Tensor copy = alias(t, t->sizes, t->strides, t->offset);
  copy->storage = copied;
  return copy;
}

std::vector<Tensor> Copies::of(const std::vector<Tensor>& all) {
  std::vector<Tensor> copies;
  for (const Tensor& t : all) copies.push_back(t ? of(t) : t);
  return copies;
}

std::optional<std::string> difference(const Graph& graph, const RunResult& compiled, const RunResult& eager) {
  if (compiled.outputs.size() != eager.outputs.size())
    return str("compiled code has ", compiled.outputs.size(), " results");
  for (size_t i = 0; i < eager.outputs.size(); i++) {
    if (is_undefined(graph, graph.outputs[i])) continue;
    if (auto found = value_difference(compiled.outputs[i], eager.outputs[i]))
      return place_text(graph, i) + ": " + *found;
    const int a = memory_of(compiled.outputs[i], compiled.inputs), b = memory_of(eager.outputs[i], eager.inputs);
    if (a != b) return place_text(graph, i) + ": it lies in other memory than eager's";
  }
  size_t next = 0;
  for (const GraphInput& in : graph.inputs) {
    if (in.constant) continue;
    // A backward drops the memory of inputs that it does not read, and x:free() that of any input.
    const bool there = eager.inputs[next]->storage->data;
    if (auto found = !there ? std::nullopt : tensor_difference(compiled.inputs[next], eager.inputs[next])) {
      return str("input ", next, " ('", in.name, "'), written: ", *found);
    }
    next++;
  }
  return {};
}

void spoil_free_memory(const std::vector<Value>& outputs) {
  std::vector<Ref<Storage>> held;
  for (const Value& v : outputs) {
    if (!v.is<Tensor>() || !v.as<Tensor>()) continue;
    const Tensor& t = v.as<Tensor>();
    if (!backend_of(t->device()).has_host_memory()) continue;
    for (int twice = 0; twice < 2; twice++) {
      held.push_back(allocate(size_t(bytes_of(t->dtype, count(t))), t->device()));
      std::memset(held.back()->data, 0xa5, held.back()->nbytes);
    }
  }
}

}  // namespace lutra
