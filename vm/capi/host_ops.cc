// lutra_register_op: makes a function in lt.ops from a schema and three rules of the host.
//
// A call of such a function is one node of the graph, the op host_op. Its operands are the tensors, the op's name and
// schema, the attributes and the types of the results as text, and up to eight floats. So the host's shape rule is
// called only when the function is called, on the state's thread; the sizes are then constants of the graph. Passes,
// other threads and artifacts in the cache read the text. The kernel is looked up at each run by state, name and
// schema: running an artifact whose op this state does not have raises an error that names the op. The gradient is a
// node host_op_backward of the same kind; differentiating it is an error. Kernels see contiguous tensors that borrow
// the run's memory; a handle that the host keeps has no memory afterwards. Rules cannot use the state, so no Lua runs
// beneath a compiled segment.
//
// Invariants:
// 1. An op lives as long as a Lua function that refers to it can: until its Lua state is closed, or for ever if the Lua
//    state belongs to the host.
// 2. Rules run on the thread that uses the state, so the state's members that they use need no lock.
#include "vm/capi/host_ops.h"

#include <cstring>
#include <lua.hpp>
#include <map>
#include <memory>
#include <mutex>

#include "ops/core/foreign.h"
#include "ops/core/storage.h"
#include "ops/extern/host_op.h"
#include "vm/bind/host_op.h"
#include "vm/capi/values.h"
#include "vm/host/modes.h"

namespace lutra::capi {
namespace {

struct StateOp : HostOp {
  lutra_State* S = nullptr;
  lutra_OpCallbacks rules = {};
  std::atomic<bool> open{true};
  std::vector<HostResult> shape(const HostForm& form, const std::vector<HostResult>& tensors) const override;
};

// Ops by the Modes of their Lua state, which are installed on the thread that runs it. A kernel can find only these:
// portals install nothing else, and a Lua state may run without having been entered through lutra.h.
struct Registered {
  std::mutex mutex;
  std::map<const Modes*, std::vector<std::unique_ptr<StateOp>>> ops;
};
Registered& registered() {
  static Registered* r = new Registered;
  return *r;
}

StateOp* find(const Modes* state, std::string_view name) {
  Registered& r = registered();
  const std::lock_guard lock(r.mutex);
  const auto known = r.ops.find(state);
  if (known == r.ops.end()) return nullptr;
  for (const auto& op : known->second) {
    if (op->title == name && op->open) return op.get();
  }
  return nullptr;
}

// -- values of the rules

// The tensors that a rule receives. The destructor frees their memory when the rule has returned.
class Handles {
 public:
  Handles() = default;
  Handles(const Handles&) = delete;
  ~Handles() {
    for (lutra_Tensor* t : all_) t->tensor->storage->free(), lutra_tensor_free(t);
  }
  lutra_Tensor* over(void* data, const Sizes& sizes, DType dtype) {
    return keep(tensor_over(data, sizes, nullptr, dtype, Device{}, {}));
  }
  // Returns a handle that has only sizes and a dtype, but no memory.
  lutra_Tensor* like(const HostResult& type) {
    Sizes sizes;
    for (const int64_t size : type.sizes) sizes.push_back(size);
    Tensor t = make_tensor(Sizes{0}, type.dtype);
    t->sizes = sizes, t->strides = contiguous_strides(sizes);
    t->storage->free();
    return keep(t);
  }

 private:
  lutra_Tensor* keep(const Tensor& t) {
    all_.reserve(all_.size() + 1);
    all_.push_back(new_handle(t));
    return all_.back();
  }
  std::vector<lutra_Tensor*> all_;
};

struct Inputs {
  std::vector<lutra_Value> values;
  std::vector<std::unique_ptr<lutra_Value[]>> tables;

  // numbers is null if the floats are not known.
  Inputs(const HostForm& form, const std::vector<lutra_Tensor*>& tensors, const double* numbers) {
    auto at = tensors.begin();
    const auto tensor = [&at] {
      lutra_Value v = {};
      v.kind = LUTRA_TENSOR, v.as.tensor = *at++;
      return v;
    };
    for (const HostArgument& a : form.arguments) {
      lutra_Value v = {};
      switch (a.kind) {
        case HostArgument::kNone: break;
        case HostArgument::kTensor: v = tensor(); break;
        case HostArgument::kTensors:
          tables.emplace_back(new lutra_Value[size_t(a.n)]());
          for (int64_t i = 0; i < a.n; i++) tables.back()[size_t(i)] = tensor();
          v.kind = LUTRA_TABLE, v.length = size_t(a.n), v.as.values = tables.back().get();
          break;
        case HostArgument::kNumber:
          if (numbers) v.kind = LUTRA_NUMBER, v.as.number = *numbers++;
          break;
        case HostArgument::kInt: v.kind = LUTRA_INTEGER, v.as.integer = a.n; break;
        case HostArgument::kInts:
          v.kind = LUTRA_INTEGERS, v.length = a.ints.size(), v.as.integers = a.ints.data();
          break;
        case HostArgument::kBool: v.kind = LUTRA_BOOLEAN, v.as.boolean = a.n != 0; break;
        case HostArgument::kText: v.kind = LUTRA_STRING, v.length = a.text.size(), v.as.string = a.text.c_str(); break;
      }
      values.push_back(v);
    }
  }
  int count() const { return int(values.size()); }
};

// -- running rules

class Barred {
 public:
  explicit Barred(lutra_State* S) : S_(S), saved_(S->barred.exchange(true)) {}
  ~Barred() { S_->barred = saved_; }
  Barred(const Barred&) = delete;

 private:
  lutra_State* S_;
  const bool saved_;
};

template <class F>
void run_rule(const StateOp& op, const char* what, const F& rule) {
  op.S->callback_error.clear();
  int code = LUTRA_OK;
  try {
    const Barred scope(op.S);
    code = rule();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(op.title, ": ", error.what());
  }
  if (code == LUTRA_OK) return;
  if (!op.S->callback_error.empty()) fail(op.title, ": ", op.S->callback_error);
  fail(op.title, ": the host's ", what, " failed with code ", code);
}

void check_shape(const HostOp& op, const lutra_Shape& shape, HostResult& out) {
  const char* dtype = lutra_dtype_name(shape.dtype);
  if (!dtype || is_stored(dtype_from_name(dtype))) {
    fail(op.title, ": its shape rule gives dtype ", shape.dtype, dtype ? str(" (", dtype, ")") : "",
         ", in which no op computes");
  }
  out.dtype = dtype_from_name(dtype);
  if (shape.ndim < 0 || shape.ndim > LUTRA_MAX_DIMS)
    fail(op.title, ": its shape rule gives ", shape.ndim, " dimensions");
  out.sizes.assign(shape.sizes, shape.sizes + shape.ndim);
  int64_t bytes = int64_t(size_of(out.dtype));
  for (const int64_t size : out.sizes) {
    if (size < 0) fail(op.title, ": its shape rule gives the size ", size);
    if (__builtin_mul_overflow(bytes, size, &bytes)) fail(op.title, ": its shape rule gives sizes that overflow");
  }
}

int number_of(DType dtype) {
  int number = 1;
  while (dtype_from_name(lutra_dtype_name(number)) != dtype) number++;
  return number;
}

std::vector<HostResult> StateOp::shape(const HostForm& form, const std::vector<HostResult>& types) const {
  if (!open) fail(title, ": the host has closed its state");
  Handles handles;
  std::vector<lutra_Tensor*> tensors;
  for (const HostResult& type : types) tensors.push_back(handles.like(type));
  const Inputs inputs(form, tensors, nullptr);
  lutra_Shape first = {number_of(types[0].dtype), int(types[0].sizes.size()), {}};
  std::copy(types[0].sizes.begin(), types[0].sizes.end(), first.sizes);
  std::vector<lutra_Shape> shapes(results, first);
  if (rules.shape) {
    run_rule(*this, "shape rule", [&] {
      return rules.shape(S, rules.arg, inputs.values.data(), inputs.count(), shapes.data(), int(results));
    });
  }
  std::vector<HostResult> out(results);
  for (size_t i = 0; i < results; i++) check_shape(*this, shapes[i], out[i]);
  return out;
}

// -- kernels

bool is_contiguous(const ExternView& v) {
  int64_t step = 1;
  for (int32_t d = v.dim; d-- > 0;) {
    if (v.sizes[d] != 1 && v.strides[d] != step) return v.numel() == 0;
    step *= v.sizes[d];
  }
  return true;
}

// Copies the elements of v, in order, to or from dense memory.
void copy_elements(const ExternView& v, char* dense, bool from_dense) {
  const size_t width = size_of(v.dtype);
  int64_t index[kExternDims] = {}, offset = 0;
  for (int64_t left = v.numel(); left-- > 0; dense += width) {
    char* element = static_cast<char*>(v.data) + offset * int64_t(width);
    from_dense ? std::memcpy(element, dense, width) : std::memcpy(dense, element, width);
    for (int32_t d = v.dim; d-- > 0;) {
      offset += v.strides[d];
      if (++index[d] < v.sizes[d]) break;
      offset -= v.strides[d] * v.sizes[d];
      index[d] = 0;
    }
  }
}

// The operands of a run as contiguous tensors.
class Operands {
 public:
  lutra_Tensor* add(const ExternView& v, bool written) {
    Sizes sizes;
    for (int32_t d = 0; d < v.dim; d++) sizes.push_back(v.sizes[d]);
    if (is_contiguous(v)) return handles_.over(v.data, sizes, v.dtype);
    const Ref<Storage> dense = allocate(size_t(v.numel()) * size_of(v.dtype), Device{});
    dense_.push_back(dense);
    written ? results_.push_back({&v, dense->data}) : copy_elements(v, static_cast<char*>(dense->data), false);
    return handles_.over(dense->data, sizes, v.dtype);
  }
  void write_back() const {
    for (const auto& [view, data] : results_) copy_elements(*view, static_cast<char*>(data), true);
  }

 private:
  std::vector<Ref<Storage>> dense_;
  std::vector<std::pair<const ExternView*, void*>> results_;
  Handles handles_;
};

const StateOp& op_of(const ExternCall& call) {
  const std::string_view text = call.strings[0], name = host_op_name(text);
  const StateOp* op = find(installed_modes, name);
  if (!op) fail(name, ": this state has no such op: lutra_register_op makes it");
  if (op->text != text) fail(name, ": the op of this state is ", op->text, ", the one that was compiled is ", text);
  return *op;
}

void check_counts(const HostForm& form, const ExternCall& call) {
  size_t in = form.tensors() + form.results, out = call.out.size();
  for (const bool given : form.given) in += given;
  if (form.results) out = 0;
  for (const bool wanted : form.wanted) out += wanted;
  LUTRA_CHECK(in == call.in.size() && out == call.out.size() && form.numbers() <= call.scalars.size(), "host_op");
}

void run(const ExternCall& call) {
  const StateOp& op = op_of(call);
  const HostForm form = read_form(call.strings[1]);
  check_counts(form, call);
  Operands operands;
  std::vector<lutra_Tensor*> in, out, given, wanted;
  for (const ExternView& v : call.in) in.push_back(operands.add(v, false));
  for (const ExternView& v : call.out) out.push_back(operands.add(v, true));
  const size_t n = form.tensors();
  const Inputs inputs(form, {in.begin(), in.begin() + long(n)}, call.scalars.data());
  const auto& [size, shape, kernel, gradient, arg] = op.rules;
  if (form.results == 0) {
    run_rule(op, "kernel",
             [&] { return kernel(op.S, arg, inputs.values.data(), inputs.count(), out.data(), int(out.size())); });
    return operands.write_back();
  }
  if (!gradient) fail(op.title, ": has no gradient: lutra_register_op was given no rule for it");
  auto next = in.begin() + long(n + form.results);
  for (const bool is_given : form.given) given.push_back(is_given ? *next++ : nullptr);
  auto place = out.begin();
  for (const bool is_wanted : form.wanted) wanted.push_back(is_wanted ? *place++ : nullptr);
  run_rule(op, "gradient", [&] {
    return gradient(op.S, arg, inputs.values.data(), inputs.count(), in.data() + n, given.data(), int(form.results),
                    wanted.data());
  });
  operands.write_back();
}

[[maybe_unused]] const bool installed = (set_host_op_runner(run), true);

// -- registering

// Pushes lt.ops or, for "image::blur", lt.ops.image. Returns the op's name in that table.
std::string push_namespace(lua_State* L, int module, const std::string& name) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, module);
  lua_getfield(L, -1, "ops");
  const size_t colons = name.find("::");
  if (colons == name.npos) return name;
  const std::string outer = name.substr(0, colons);
  lua_getfield(L, -1, outer.c_str());
  if (lua_isnil(L, -1)) {
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -4, outer.c_str());
  }
  if (!lua_istable(L, -1)) refuse("lt.ops.", outer, " is an op, and cannot hold others");
  return name.substr(colons + 2);
}

int add_op(lutra_State* S, lua_State* L, const char* schema, const lutra_OpCallbacks& rules) {
  auto op = std::make_unique<StateOp>();
  try {
    read_host_schema(schema, *op);
  } catch (const Error& error) {
    refuse(error.what());
  }
  op->S = S, op->rules = rules, op->has_gradient = rules.gradient != nullptr;
  const Modes* owner = modes_of(L).get();
  if (find(owner, op->title)) refuse("the state has an op ", op->title, " already");
  const std::string last = push_namespace(L, S->module, op->title);
  lua_getfield(L, -1, last.c_str());
  if (!lua_isnil(L, -1)) refuse("lt.ops has '", op->title, "' already");
  lua_pop(L, 1);
  push_host_op(L, *op);
  {
    const std::lock_guard lock(registered().mutex);
    registered().ops[owner].push_back(std::move(op));
  }
  lua_setfield(L, -2, last.c_str());
  return 0;
}

}  // namespace

void close_host_ops(const lutra_State* S) {
  Registered& r = registered();
  const std::lock_guard lock(r.mutex);
  for (auto& [owner, list] : r.ops) {
    for (const auto& op : list) {
      if (op->S == S) op->open = false;
    }
  }
}

void free_host_ops(const lutra_State* S) {
  Registered& r = registered();
  const std::lock_guard lock(r.mutex);
  for (auto& [owner, list] : r.ops) std::erase_if(list, [S](const auto& op) { return op->S == S; });
  std::erase_if(r.ops, [](const auto& row) { return row.second.empty(); });
}

}  // namespace lutra::capi

using namespace lutra;
using namespace lutra::capi;

extern "C" int lutra_register_op(lutra_State* S, const char* schema, const lutra_OpCallbacks* callbacks) {
  StateScope scope(S, "lutra_register_op");
  if (!scope.has(schema, "the schema") || !scope.has(callbacks, "callbacks")) return scope.code();
  lutra_OpCallbacks rules = {};
  if (!read_struct(callbacks, offsetof(lutra_OpCallbacks, arg), rules))
    return scope.fail(LUTRA_ERROR_ARGUMENT, "lutra_register_op: size must be sizeof(lutra_OpCallbacks)");
  if (!rules.kernel) return scope.fail(LUTRA_ERROR_ARGUMENT, "lutra_register_op: the kernel must not be NULL");
  return scope.run([&](lua_State* L) { return add_op(S, L, schema, rules); });
}
