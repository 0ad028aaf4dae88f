// lutra.hpp: lutra.h for hosts in C++11 and later. Header only: handles that free what they hold, errors as exceptions.
//
//   lutra::State S;
//   S.run("step = lt.compile(function(x) return (x * 2):sum() end)");
//   std::vector<float> data(6, 1.5f);
//   lutra::Tensor x = S.tensor(data.data(), {2, 3});  // over data, without a copy
//   float sum = S.function("step")(x).item<float>();
#ifndef LUTRA_HPP
#define LUTRA_HPP

#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lutra.h"

namespace lutra {

// An error code of lutra.h with the message of lutra_error.
class Error : public std::runtime_error {
 public:
  Error(int code, const char* message) : std::runtime_error(message), code(code) {}
  int code;
};

inline void check(int code, const lutra_State* S = nullptr) {
  if (code != LUTRA_OK) throw Error(code, lutra_error(S));
}

// The dtype of a C++ type.
template <class T>
struct dtype_of;
#define LUTRA_DTYPE_OF(type, dtype)     \
  template <>                           \
  struct dtype_of<type> {               \
    static constexpr int value = dtype; \
  };
LUTRA_DTYPE_OF(bool, LUTRA_BOOL)
LUTRA_DTYPE_OF(std::uint8_t, LUTRA_UINT8)
LUTRA_DTYPE_OF(std::int8_t, LUTRA_INT8)
LUTRA_DTYPE_OF(std::int16_t, LUTRA_INT16)
LUTRA_DTYPE_OF(std::int32_t, LUTRA_INT32)
LUTRA_DTYPE_OF(std::int64_t, LUTRA_INT64)
LUTRA_DTYPE_OF(float, LUTRA_FLOAT32)
LUTRA_DTYPE_OF(double, LUTRA_FLOAT64)
LUTRA_DTYPE_OF(std::uint16_t, LUTRA_UINT16)
LUTRA_DTYPE_OF(std::uint32_t, LUTRA_UINT32)
LUTRA_DTYPE_OF(std::uint64_t, LUTRA_UINT64)
#undef LUTRA_DTYPE_OF

using Sizes = std::vector<std::int64_t>;

// A reference-counted handle of a tensor. Copies refer to the same tensor. An empty handle is nil.
class Tensor {
 public:
  Tensor() = default;
  // Takes ownership of the reference.
  explicit Tensor(lutra_Tensor* handle) : handle_(handle) {}
  Tensor(const Tensor& o) : handle_(lutra_tensor_retain(o.handle_)) {}
  Tensor(Tensor&& o) noexcept : handle_(o.handle_) { o.handle_ = nullptr; }
  Tensor& operator=(Tensor o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~Tensor() { lutra_tensor_free(handle_); }

  explicit operator bool() const { return handle_ != nullptr; }
  lutra_Tensor* handle() const { return handle_; }
  lutra_Tensor* release() {
    lutra_Tensor* handle = handle_;
    handle_ = nullptr;
    return handle;
  }

  int ndim() const { return lutra_tensor_ndim(handle_); }
  Sizes sizes() const { return list(lutra_tensor_sizes(handle_)); }
  Sizes strides() const { return list(lutra_tensor_strides(handle_)); }
  std::int64_t numel() const { return lutra_tensor_numel(handle_); }
  int dtype() const { return lutra_tensor_dtype(handle_); }
  std::string device() const { return handle_ ? lutra_tensor_device(handle_) : ""; }

  // Returns the address of the first element; strides() tells where the others are. T must match the dtype.
  template <class T>
  T* data() const {
    check_type<T>();
    void* p = lutra_tensor_data(handle_);
    if (!p && numel() != 0) throw Error(LUTRA_ERROR_ARGUMENT, lutra_error(nullptr));
    return static_cast<T*>(p);
  }
  // Copies all elements in order, from any device.
  template <class T>
  std::vector<T> to_vector() const {
    check_type<T>();
    std::vector<T> out(size_t(numel() < 0 ? 0 : numel()));
    lutra::check(lutra_tensor_copy_to(handle_, out.data(), out.size() * sizeof(T)));
    return out;
  }
  template <class T>
  void copy_from(const std::vector<T>& from) const {
    check_type<T>();
    lutra::check(lutra_tensor_copy_from(handle_, from.data(), from.size() * sizeof(T)));
  }
  // Returns the only element.
  template <class T>
  T item() const {
    check_type<T>();
    T out;
    lutra::check(lutra_tensor_copy_to(handle_, &out, sizeof out));
    return out;
  }
  DLManagedTensorVersioned* to_dlpack() const {
    DLManagedTensorVersioned* out = nullptr;
    lutra::check(lutra_tensor_to_dlpack(handle_, &out));
    return out;
  }
  DLManagedTensor* to_dlpack_unversioned() const {
    DLManagedTensor* out = nullptr;
    lutra::check(lutra_tensor_to_dlpack_unversioned(handle_, &out));
    return out;
  }

 private:
  template <class T>
  void check_type() const {
    if (handle_ && dtype() == dtype_of<T>::value) return;
    const char* has = handle_ ? lutra_dtype_name(dtype()) : "nil";
    throw Error(LUTRA_ERROR_ARGUMENT,
                (std::string("a tensor of ") + lutra_dtype_name(dtype_of<T>::value) + " is needed, this one is " + has)
                    .c_str());
  }
  Sizes list(const std::int64_t* from) const { return from ? Sizes(from, from + ndim()) : Sizes(); }
  lutra_Tensor* handle_ = nullptr;
};

// A value: nil, a boolean, a number, a string, a tensor, a list of integers or a table. With a name it is a keyword
// argument, or a field if it is in a table.
class Value {
 public:
  Value() = default;
  Value(std::nullptr_t) {}                                       // NOLINT
  Value(bool v) { v_.kind = LUTRA_BOOLEAN, v_.as.boolean = v; }  // NOLINT
  Value(double v) { v_.kind = LUTRA_NUMBER, v_.as.number = v; }  // NOLINT
  // Takes any integer type. Throws if the integer does not fit into an int64.
  template <class T, class = typename std::enable_if<std::is_integral<T>::value && !std::is_same<T, bool>::value>::type>
  Value(T v) {  // NOLINT
    if (std::is_unsigned<T>::value && std::uint64_t(v) > std::uint64_t(INT64_MAX)) {
      throw Error(LUTRA_ERROR_ARGUMENT, "the integer does not fit into 64 bits with a sign");
    }
    v_.kind = LUTRA_INTEGER, v_.as.integer = std::int64_t(v);
  }
  Value(const char* v) : Value(std::string(v)) {}                                            // NOLINT
  Value(std::string v) : text_(std::move(v)) { v_.kind = LUTRA_STRING; }                     // NOLINT
  Value(Tensor v) : tensor_(std::move(v)) { v_.kind = tensor_ ? LUTRA_TENSOR : LUTRA_NIL; }  // NOLINT
  Value(Sizes v) : list_(std::move(v)) { v_.kind = LUTRA_INTEGERS; }                         // NOLINT
  // Takes ownership of an output of the C API; v is nil afterwards.
  explicit Value(lutra_Value&& v) : v_(v) {
    if (v.name) name_ = v.name, named_ = true;
    if (v.kind == LUTRA_STRING) text_.assign(v.as.string, v.length);
    if (v.kind == LUTRA_TENSOR) tensor_ = Tensor(v.as.tensor), v.kind = LUTRA_NIL;
    if (v.kind == LUTRA_TABLE) {
      std::vector<Value> values;
      values.reserve(v.length);
      for (size_t i = 0; i < v.length; i++) values.emplace_back(std::move(v.as.values[i]));
      hold(std::move(values));
      lutra_values_free(&v, 1);
    }
  }
  // Copies a value that the caller keeps: an input of a callback or of a rule.
  static Value borrowed(const lutra_Value& v) {
    if (v.kind == LUTRA_TABLE) {
      std::vector<Value> values;
      for (size_t i = 0; i < v.length; i++) values.push_back(borrowed(v.as.values[i]));
      return table(std::move(values));
    }
    if (v.kind == LUTRA_INTEGERS) return Value(Sizes(v.as.integers, v.as.integers + v.length));
    lutra_Value copy = v;
    if (v.kind == LUTRA_TENSOR) lutra_tensor_retain(copy.as.tensor);
    return Value(std::move(copy));
  }
  static Value keyword(std::string name, Value v) { return v.name_ = std::move(name), v.named_ = true, v; }
  // Makes a table. Values with names (by keyword) are its fields, the others its list.
  static Value table(std::vector<Value> values) {
    Value v;
    v.v_.kind = LUTRA_TABLE;
    v.hold(std::move(values));
    return v;
  }

  int kind() const { return v_.kind; }
  bool boolean() const { return need(LUTRA_BOOLEAN), v_.as.boolean != 0; }
  double number() const {
    return v_.kind == LUTRA_INTEGER ? double(v_.as.integer) : (need(LUTRA_NUMBER), v_.as.number);
  }
  const std::string& string() const { return need(LUTRA_STRING), text_; }
  const Tensor& tensor() const { return need(LUTRA_TENSOR), tensor_; }
  const Sizes& integers() const { return need(LUTRA_INTEGERS), list_; }
  // The values of a table: its list and its fields; in a table from Lua the list comes first. names() has an empty name
  // for each list element.
  const std::vector<Value>& values() const;
  const std::vector<std::string>& names() const;
  // Returns a field of a table; null if there is none.
  const Value* find(const std::string& name) const;
  const Value& operator[](const std::string& name) const {
    const Value* v = find(name);
    if (!v) throw Error(LUTRA_ERROR_ARGUMENT, ("the table has no field '" + name + "'").c_str());
    return *v;
  }

  // Returns the value for the C API, valid while this object lives unchanged.
  lutra_Value c() const {
    lutra_Value v = v_;
    v.name = named_ ? name_.c_str() : nullptr;
    if (v.kind == LUTRA_STRING) v.as.string = text_.c_str(), v.length = text_.size();
    if (v.kind == LUTRA_TENSOR) v.as.tensor = tensor_.handle();
    if (v.kind == LUTRA_INTEGERS) v.as.integers = list_.data(), v.length = list_.size();
    if (v.kind == LUTRA_TABLE) v.as.values = table_array(), v.length = values().size();
    return v;
  }

 private:
  struct Table;
  void hold(std::vector<Value> values);
  lutra_Value* table_array() const;
  void need(int kind) const {
    if (v_.kind != kind) throw Error(LUTRA_ERROR_ARGUMENT, "the value is of another kind");
  }
  lutra_Value v_ = lutra_Value();
  std::string text_, name_;
  bool named_ = false;
  Tensor tensor_;
  Sizes list_;
  std::shared_ptr<const Table> table_;  // shared by copies, since values never change
};

struct Value::Table {
  explicit Table(std::vector<Value> v) : values(std::move(v)) {
    for (Value& value : values) {
      const bool named = value.named_;
      names.push_back(std::move(value.name_));
      value.name_.clear(), value.named_ = false;  // the table holds the name
      array.push_back(value.c());
      if (named) array.back().name = "";
    }
    for (size_t i = 0; i < names.size(); i++) {
      if (array[i].name) array[i].name = names[i].c_str();
    }
  }
  std::vector<Value> values;
  std::vector<std::string> names;
  std::vector<lutra_Value> array;  // for the C API
};
inline void Value::hold(std::vector<Value> values) { table_ = std::make_shared<const Table>(std::move(values)); }
inline lutra_Value* Value::table_array() const { return const_cast<lutra_Value*>(table_->array.data()); }
inline const std::vector<Value>& Value::values() const { return need(LUTRA_TABLE), table_->values; }
inline const std::vector<std::string>& Value::names() const { return need(LUTRA_TABLE), table_->names; }
inline const Value* Value::find(const std::string& name) const {
  for (size_t i = 0; i < values().size(); i++) {
    if (table_->array[i].name && table_->names[i] == name) return &table_->values[i];
  }
  return nullptr;
}

// Memory for the results of a call.
class Outputs {
 public:
  explicit Outputs(int n) : values_(static_cast<size_t>(n)) {}
  ~Outputs() { lutra_values_free(values_.data(), int(values_.size())); }
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  lutra_Value* data() { return values_.data(); }
  std::vector<Value> take() {
    std::vector<Value> taken;
    taken.reserve(values_.size());
    for (lutra_Value& v : values_) taken.emplace_back(std::move(v));
    return taken;
  }

 private:
  std::vector<lutra_Value> values_;
};

// A Lua function. It may outlive its state, but must not be called then.
class Function {
 public:
  Function(lutra_State* S, const char* expression) : S_(S) {
    lutra_Function* f = nullptr;
    check(lutra_function(S, expression, &f), S);
    f_ = std::shared_ptr<lutra_Function>(f, lutra_function_free);
  }
  // Calls it with tensors and returns the first result.
  template <class... T>
  Tensor operator()(const T&... inputs) const {
    return std::move(call({inputs...}, 1)[0]);
  }
  std::vector<Tensor> call(const std::vector<Tensor>& inputs, int outputs) const {
    std::vector<lutra_Tensor*> in, out(size_t(outputs), nullptr);
    for (const Tensor& t : inputs) in.push_back(t.handle());
    check(lutra_invoke(f_.get(), in.data(), int(in.size()), out.data(), outputs), S_);
    return std::vector<Tensor>(out.begin(), out.end());
  }
  std::vector<Value> call_values(const std::vector<Value>& inputs, int outputs) const {
    std::vector<lutra_Value> in;
    Outputs out(outputs);
    for (const Value& v : inputs) in.push_back(v.c());
    check(lutra_invoke_values(f_.get(), in.data(), int(in.size()), out.data(), outputs), S_);
    return out.take();
  }

 private:
  lutra_State* S_;
  std::shared_ptr<lutra_Function> f_;
};

// A function of the host for Lua: takes and returns values. An exception becomes a Lua error.
using Callback = std::function<std::vector<Value>(const std::vector<Value>&)>;

// The rules of an op, as in lutra_OpCallbacks; shape and gradient may be empty. Their tensors are valid until the rule
// returns.
struct Op {
  using Values = std::vector<Value>;
  using Tensors = std::vector<Tensor>;
  std::function<void(const Values& inputs, std::vector<lutra_Shape>& results)> shape;
  std::function<void(const Values& inputs, const Tensors& results)> kernel;
  // An empty tensor is a gradient that is not given (in `gradients`) or not wanted (in `to`).
  std::function<void(const Values& inputs, const Tensors& results, const Tensors& gradients, const Tensors& to)>
      gradient;
};

class State {
 public:
  explicit State(const lutra_Options* options = nullptr) : S_(lutra_open(options)) {
    if (!S_) throw Error(LUTRA_ERROR_RUN, lutra_error(nullptr));
  }
  ~State() { lutra_close(S_); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  lutra_State* handle() const { return S_; }

  void run(const std::string& text, const char* name = "=host") { check(lutra_do_string(S_, text.c_str(), name), S_); }
  void run_file(const std::string& path, const std::vector<std::string>& arguments = {}) {
    std::vector<const char*> argv;
    for (const std::string& a : arguments) argv.push_back(a.c_str());
    check(lutra_do_file(S_, path.c_str(), int(argv.size()), argv.data()), S_);
  }
  // Stops what runs (lutra_interrupt). Any thread may call it.
  void interrupt() { check(lutra_interrupt(S_)); }
  // Sets the limits of each later call; 0: no limit.
  void set_limits(double seconds, std::uint64_t bytes = 0, int threads = 0) {
    lutra_Limits limits = lutra_Limits();
    limits.size = sizeof limits, limits.seconds = seconds, limits.bytes = bytes, limits.threads = threads;
    check(lutra_set_limits(S_, &limits), S_);
  }

  Function function(const std::string& expression) { return Function(S_, expression.c_str()); }

  // Makes a tensor over data without copying it. data must stay valid as long as a tensor over it lives. Without
  // strides the tensor is contiguous.
  template <class T>
  Tensor tensor(T* data, const Sizes& sizes, const Sizes& strides = {}) {
    return over(data, sizes, strides, nullptr, nullptr);
  }
  // Calls deleter(data, arg) when no tensor needs the memory any more. If this throws, it does not call the deleter.
  template <class T>
  Tensor tensor(T* data, const Sizes& sizes, const Sizes& strides, lutra_Deleter deleter, void* arg = nullptr) {
    return over(data, sizes, strides, deleter, arg);
  }
  // Takes ownership of the elements.
  template <class T>
  Tensor tensor(std::vector<T> data, const Sizes& sizes) {
    std::int64_t n = 1;
    for (std::int64_t size : sizes) n *= size;
    if (n != std::int64_t(data.size())) throw Error(LUTRA_ERROR_ARGUMENT, "tensor: the sizes ask for another number");
    std::unique_ptr<std::vector<T>> kept(new std::vector<T>(std::move(data)));
    Tensor t = over(
        kept->data(), sizes, {}, [](void*, void* arg) { delete static_cast<std::vector<T>*>(arg); }, kept.get());
    kept.release();
    return t;
  }
  Tensor empty(int dtype, const Sizes& sizes, const char* device = nullptr) {
    lutra_Tensor* t = nullptr;
    check(lutra_tensor_empty(S_, dtype, int(sizes.size()), sizes.data(), device, &t), S_);
    return Tensor(t);
  }
  Tensor from_dlpack(DLManagedTensorVersioned* managed) {
    lutra_Tensor* t = nullptr;
    check(lutra_tensor_from_dlpack(S_, managed, &t), S_);
    return Tensor(t);
  }
  Tensor from_dlpack(DLManagedTensor* managed) {
    lutra_Tensor* t = nullptr;
    check(lutra_tensor_from_dlpack_unversioned(S_, managed, &t), S_);
    return Tensor(t);
  }

  // Calls an op and returns its first result. Pass keyword arguments with Value::keyword.
  Tensor op(const char* name, const std::vector<Value>& inputs) { return op(name, inputs, 1)[0].tensor(); }
  std::vector<Value> op(const char* name, const std::vector<Value>& inputs, int outputs) {
    std::vector<lutra_Value> in;
    Outputs out(outputs);
    for (const Value& v : inputs) in.push_back(v.c());
    check(lutra_op_values(S_, name, in.data(), int(in.size()), out.data(), outputs), S_);
    return out.take();
  }

  void register_function(const char* name, Callback callback) {
    callbacks_.emplace_back(new Callback(std::move(callback)));
    check(lutra_register(S_, name, call_back, callbacks_.back().get()), S_);
  }
  // S.register_op("twice(Tensor x) -> Tensor", {nullptr, [](auto& in, auto& out) { ... }, nullptr})
  void register_op(const char* schema, Op op) {
    ops_.emplace_back(new Op(std::move(op)));
    const Op& rules = *ops_.back();
    lutra_OpCallbacks callbacks = lutra_OpCallbacks();
    callbacks.size = sizeof callbacks, callbacks.arg = ops_.back().get();
    if (rules.shape) callbacks.shape = shape_rule;
    if (rules.kernel) callbacks.kernel = kernel_rule;
    if (rules.gradient) callbacks.gradient = gradient_rule;
    check(lutra_register_op(S_, schema, &callbacks), S_);
  }
  void load_state(const char* module, const std::string& path) {
    check(lutra_load_state(S_, module, path.c_str()), S_);
  }
  // Loads the bytes of a .safetensors file.
  void load_state(const char* module, const void* data, size_t bytes) {
    check(lutra_load_state_memory(S_, module, data, bytes), S_);
  }

 private:
  template <class T>
  Tensor over(T* data, const Sizes& sizes, const Sizes& strides, lutra_Deleter deleter, void* arg) {
    lutra_Tensor* t = nullptr;
    if (!strides.empty() && strides.size() != sizes.size()) {
      throw Error(LUTRA_ERROR_ARGUMENT, "tensor: sizes and strides differ in length");
    }
    const int code =
        lutra_tensor_from_memory(S_, const_cast<typename std::remove_const<T>::type*>(data),
                                 dtype_of<typename std::remove_const<T>::type>::value, int(sizes.size()), sizes.data(),
                                 strides.empty() ? nullptr : strides.data(), nullptr, deleter, arg, &t);
    check(code, S_);
    return Tensor(t);
  }

  static int call_back(lutra_State* S, void* arg, const lutra_Value* inputs, int n, lutra_Value* outputs, int* m) {
    try {
      std::vector<Value> in;
      for (int i = 0; i < n; i++) in.push_back(Value::borrowed(inputs[i]));
      std::vector<Value> out = (*static_cast<Callback*>(arg))(in);
      if (out.size() > size_t(*m)) return lutra_fail(S, "the host's function gives too many results");
      for (size_t i = 0; i < out.size(); i++) {
        outputs[i] = out[i].c();
        if (outputs[i].kind == LUTRA_TENSOR) lutra_tensor_retain(outputs[i].as.tensor);
      }
      *m = int(out.size());
      kept() = std::move(out);  // texts live until they are copied, on return
      return LUTRA_OK;
    } catch (const std::exception& e) {
      return lutra_fail(S, e.what());
    }
  }
  template <class F>
  static int rule(lutra_State* S, const F& run) {
    try {
      run();
      return LUTRA_OK;
    } catch (const std::exception& e) {
      return lutra_fail(S, e.what());
    }
  }
  static std::vector<Value> values(const lutra_Value* from, int n) {
    std::vector<Value> out;
    for (int i = 0; i < n; i++) out.push_back(Value::borrowed(from[i]));
    return out;
  }
  static std::vector<Tensor> tensors(lutra_Tensor* const* from, size_t n) {
    std::vector<Tensor> out;
    for (size_t i = 0; i < n; i++) out.emplace_back(lutra_tensor_retain(from[i]));
    return out;
  }
  static size_t tensors_in(const lutra_Value* inputs, int n) {
    size_t count = 0;
    for (int i = 0; i < n; i++)
      count += inputs[i].kind == LUTRA_TABLE ? inputs[i].length : inputs[i].kind == LUTRA_TENSOR;
    return count;
  }
  static int shape_rule(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Shape* out, int m) {
    return rule(S, [&] {
      std::vector<lutra_Shape> results(out, out + m);
      static_cast<Op*>(arg)->shape(values(in, n), results);
      for (int i = 0; i < m; i++) out[i] = results.at(size_t(i));
    });
  }
  static int kernel_rule(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* out, int m) {
    return rule(S, [&] { static_cast<Op*>(arg)->kernel(values(in, n), tensors(out, size_t(m))); });
  }
  static int gradient_rule(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* results,
                           lutra_Tensor* const* gradients, int m, lutra_Tensor* const* to) {
    return rule(S, [&] {
      static_cast<Op*>(arg)->gradient(values(in, n), tensors(results, size_t(m)), tensors(gradients, size_t(m)),
                                      tensors(to, tensors_in(in, n)));
    });
  }
  static std::vector<Value>& kept() {
    static thread_local std::vector<Value> values;
    return values;
  }

  lutra_State* S_;
  std::vector<std::unique_ptr<Callback>> callbacks_;
  std::vector<std::unique_ptr<Op>> ops_;
};

}  // namespace lutra

#endif
