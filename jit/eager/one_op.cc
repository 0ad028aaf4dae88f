// See one_op.h. A key is a list of words, each a tag with a payload, so two different calls never have the same key.
#include "jit/eager/one_op.h"

#include <cstring>

#include "jit/compile.h"
#include "jit/device/backend.h"
#include "ops/decompose/emit.h"
#include "ops/grad/vjp.h"

namespace lutra {
namespace {

enum Tag : uint64_t { kNoneTag, kTensorTag, kListTag, kScalarTag, kBoolTag, kSizesTag, kDTypeTag, kStringTag };

uint64_t word(Tag tag, uint64_t a = 0, uint64_t b = 0) { return tag | a << 8 | b << 32; }

// Code is also specialised to a number that is its argument's default, since few calls pass another one: x + y does not
// multiply by alpha.
bool specialises(const ArgInfo& arg, const Value& v) {
  if (arg.specialises || arg.type != ArgType::kScalar || !v.is<Scalar>() || !arg.def.is<Scalar>())
    return arg.specialises;
  const Scalar &given = v.as<Scalar>(), &by_default = arg.def.as<Scalar>();
  return given.kind == by_default.kind && std::memcmp(&given.i, &by_default.i, 8) == 0;
}

struct Reader {
  OneOpCall& call;

  void tensor(const Tensor& t) {
    call.key.push_back(word(kTensorTag, uint64_t(t->dtype)));
    call.tensors.push_back(t.get());
  }
  void scalar(const Scalar& s, bool specialises) {
    if (s.kind == Scalar::kBool || specialises) {
      uint64_t bits;
      std::memcpy(&bits, &s.i, 8);
      call.key.push_back(word(kScalarTag, 3 + uint64_t(s.kind)));
      call.key.push_back(bits);
    } else if (s.kind == Scalar::kInt) {
      call.key.push_back(word(kScalarTag, 2));
      call.ints.push_back(s.i);
    } else {
      call.key.push_back(word(kScalarTag, s.is_whole()));
      call.scalars.push_back(s.d);
    }
  }
  void sizes(const Sizes& v, bool specialises) {
    call.key.push_back(word(kSizesTag, specialises, v.size()));
    for (SymInt s : v) {
      if (specialises) {
        call.key.push_back(uint64_t(s.hint));
      } else {
        call.ints.push_back(s.hint);
      }
    }
  }
  void string(const std::string& s) {
    call.key.push_back(word(kStringTag, s.size()));
    for (size_t i = 0; i < s.size(); i += 8) {
      uint64_t bits = 0;
      std::memcpy(&bits, s.data() + i, std::min<size_t>(8, s.size() - i));
      call.key.push_back(bits);
    }
  }
  void value(const Value& v, bool specialises) {
    if (v.is_none()) return call.key.push_back(word(kNoneTag));
    if (v.is<Tensor>()) return v.as<Tensor>() ? tensor(v.as<Tensor>()) : call.key.push_back(word(kNoneTag));
    if (v.is<Scalar>()) return scalar(v.as<Scalar>(), specialises);
    if (v.is<bool>()) return call.key.push_back(word(kBoolTag, v.as<bool>()));
    if (v.is<Sizes>()) return sizes(v.as<Sizes>(), specialises);
    if (v.is<DType>()) return call.key.push_back(word(kDTypeTag, uint64_t(v.as<DType>())));
    if (v.is<std::string>()) return string(v.as<std::string>());
    if (v.is<std::vector<Tensor>>()) {
      call.key.push_back(word(kListTag, v.as<std::vector<Tensor>>().size()));
      for (const Tensor& t : v.as<std::vector<Tensor>>()) tensor(t);
    }
  }
};

// Returns arguments in terms of a graph's symbols, in the order in which Reader reads them.
struct Symbolizer {
  Graph& graph;
  const std::vector<Tensor>& tensors;
  const Tensor& ints;  // the input whose strides hold the integers
  size_t tensor = 0, number = 0;

  Value scalar(const Scalar& s, bool specialises) {
    if (s.kind == Scalar::kBool || specialises) return s;
    if (s.kind == Scalar::kInt) return Scalar::of_sym(ints->strides[number++]);
    return graph.add_scalar(str("scalar", graph.scalars.size()), s.d);
  }
  Value value(const Value& v, bool specialises) {
    if (v.is<Tensor>() && v.as<Tensor>()) return tensors[tensor++];
    if (v.is<Scalar>()) return scalar(v.as<Scalar>(), specialises);
    if (v.is<Sizes>() && !specialises) {
      Sizes out;
      for (size_t i = 0; i < v.as<Sizes>().size(); i++) out.push_back(ints->strides[number++]);
      return out;
    }
    if (v.is<std::vector<Tensor>>()) {
      std::vector<Tensor> list;
      for (size_t i = 0; i < v.as<std::vector<Tensor>>().size(); i++) list.push_back(tensors[tensor++]);
      return list;
    }
    return v;
  }
  Args all(const OpInfo& op, const Args& args) {
    Args out;
    for (size_t i = 0; i < args.size(); i++) out.push_back(value(args[i], specialises(op.args[i], args[i])));
    return out;
  }
};

// Uses strides, since sizes are known to be nonnegative.
Tensor ints_input(Graph& g, const OneOpCall& call) {
  if (call.ints.empty()) return Tensor();
  Sizes strides;
  const auto index = int32_t(g.inputs.size());
  for (size_t i = 0; i < call.ints.size(); i++) {
    strides.push_back(SymInt::of_expr(*g.env, g.env->leaf(SymOp::kStride, index, int32_t(i), call.ints[i].hint)));
  }
  return g.add_input("ints", Sizes(strides.size(), 1), strides, DType::kBool, call.device);
}

SymInt stride_symbol(Graph& g, int32_t input, int32_t dim, int64_t stride, int64_t hint) {
  if (stride == 0 || stride == 1) return stride;
  return SymInt::of_expr(*g.env, g.env->leaf(SymOp::kStride, input, dim, hint));
}

// Records the op on symbolic arguments. created: the sizes of a pointwise creation's result, which has the given dtype.
Results record(const OpInfo& op, const Args& args, Symbolizer& s, GraphRecorder& recorder, const Sizes* created,
               DType dtype) {
  Args symbolic = s.all(op, args);
  for (size_t i = 0; created && i < symbolic.size(); i++) {
    if (op.args[i].type == ArgType::kIntList) symbolic[i] = *created;
    if (op.args[i].type == ArgType::kDType) symbolic[i] = dtype;
  }
  ModeScope mode(&recorder);
  return call_op(op.id, symbolic);
}

// Returns the value of out after r is written into it.
Tensor fitted(Tensor r, const Tensor& out, GraphRecorder& recorder) {
  ModeScope mode(&recorder);
  r = to_dtype(r, out->dtype);
  if (r->sizes.size() != out->sizes.size()) r = expand(r, out->sizes);
  return r;
}

}  // namespace

void read_call(const OpInfo& op, const Args& args, OneOpCall& call) {
  Reader reader{call};
  call.device = result_device(op, args);
  // The key has the origin, since errors about elements name it.
  call.key.push_back(uint64_t(op.id) | uint64_t(current_origin()) << 16 | uint64_t(call.device.type) << 32 |
                     uint64_t(call.device.index) << 40);
  for (size_t i = 0; i < args.size(); i++) {
    if (op.args[i].type != ArgType::kDevice) reader.value(args[i], specialises(op.args[i], args[i]));
  }
}

bool has_short_rows(const Collapsed& c) { return c.dims > 1 && c.sizes[c.dims - 1] < 64; }

namespace {

// Returns the hints of a generic trace, innermost first: a large contiguous result.
const int64_t* size_hints(const Collapsed& c, Device device) {
  const LikelySizes& likely = backend_of(device).preferences.likely;
  return (c.dims == 1 ? likely.flat : has_short_rows(c) ? likely.short_rows : likely.rows).data();
}

}  // namespace

OneOpGraph pointwise_graph(const OpInfo& op, const Args& args, const OneOpCall& call, const Collapsed& c, DType dtype,
                           bool generic) {
  OneOpGraph made{std::make_unique<Graph>(), !generic};
  Graph& g = *made.graph;
  SymScope symbols(g.env.get());
  GradModeScope no_grad(false);
  GraphRecorder recorder(g);
  const int64_t* hints = size_hints(c, call.device);
  Sizes sizes;
  SmallVec<int64_t, 8> stride_hints(size_t(c.dims), 2);
  for (int d = c.dims; d-- > 0;) {
    stride_hints[size_t(d)] = d == c.dims - 1 ? 2 : stride_hints[size_t(d + 1)] * hints[c.dims - 2 - d];
  }
  for (int d = 0; d < c.dims; d++) {
    const int64_t hint = generic ? hints[c.dims - 1 - d] : c.sizes[d];
    sizes.push_back(SymInt::of_expr(*g.env, g.env->leaf(SymOp::kSize, 0, d, hint)));
  }
  std::vector<Tensor> inputs;
  for (int k = 0; k < c.operands; k++) {
    const bool zero_dim = k > 0 && call.tensors[size_t(k - 1)]->sizes.empty();
    Sizes strides;
    for (int d = 0; d < c.dims; d++) {
      const int64_t stride = c.strides[k][d];
      const bool inner = d == c.dims - 1;
      const bool unit = k > 0 && d == c.column(k);
      strides.push_back(stride_symbol(g, k, d, inner || unit ? stride : 2, generic ? stride_hints[size_t(d)] : stride));
    }
    const DType type = k == 0 ? dtype : call.tensors[size_t(k - 1)]->dtype;
    inputs.push_back(g.add_input(k ? str("in", k) : "out", zero_dim ? Sizes() : sizes, zero_dim ? Sizes() : strides,
                                 type, call.device));
  }
  const Tensor out = inputs[0];
  inputs.erase(inputs.begin());
  Symbolizer s{g, inputs, ints_input(g, call)};
  Tensor r;
  if (op.id == OpId::copy_) {
    r = inputs[1];
  } else {
    r = record(op, args, s, recorder, op.has(kCreation) ? &sizes : nullptr, dtype)[0];
  }
  Args copy = {out, fitted(r, out, recorder)};
  recorder.call(OpId::copy_, copy);
  return made;
}

OneOpGraph general_graph(const OpInfo& op, const Args& args, const OneOpCall& call) {
  OneOpGraph made{std::make_unique<Graph>(), true};
  Graph& g = *made.graph;
  SymScope symbols(g.env.get());
  GradModeScope no_grad(false);
  GraphRecorder recorder(g);
  std::vector<Tensor> inputs;
  for (size_t k = 0; k < call.tensors.size(); k++) {
    const TensorImpl& t = *call.tensors[k];
    Sizes sizes, strides;
    for (size_t d = 0; d < t.sizes.size(); d++) {
      const auto input = int32_t(k), dim = int32_t(d);
      sizes.push_back(SymInt::of_expr(*g.env, g.env->leaf(SymOp::kSize, input, dim, t.sizes[d].hint)));
      strides.push_back(stride_symbol(g, input, dim, t.strides[d].hint, t.strides[d].hint));
    }
    inputs.push_back(g.add_input(str("in", k), sizes, strides, t.dtype, call.device));
  }
  Symbolizer s{g, inputs, ints_input(g, call)};
  for (const Tensor& t : record(op, args, s, recorder, nullptr, DType::kNone)) g.outputs.push_back(t);
  return made;
}

std::unique_ptr<EagerEntry> build_entry(OneOpGraph made, const EagerKey& key) {
  CompileOptions options;
  const Node& node = *made.graph->nodes[0];
  options.eager = str("eager_", name_of_call(node.op, node.args));
  auto entry = std::make_unique<EagerEntry>();
  entry->key = key;
  entry->executable = compile_graph(std::move(made.graph), options).executable;
  const Plan& plan = entry->executable->plan();
  entry->guards.begin(plan.exprs, {});
  for (const SymGuard& g : plan.guards) {
    const bool equality = (g.cmp == SymCmp::kEq && g.outcome) || (g.cmp == SymCmp::kNe && !g.outcome);
    // A decomposition that compared a number has chosen a formula by it.
    const bool of_numbers = is_number(plan.exprs[size_t(g.a)].op) || g.cmp == SymCmp::kWhole;
    if (!made.all_guards && !equality && !of_numbers) continue;
    entry->guards.add_guard(g);
    entry->guards_sizes |= !of_numbers;
  }
  entry->values = entry->guards.start_values();
  return entry;
}

}  // namespace lutra
