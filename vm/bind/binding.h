// Bindings: the functions that Lua can call, written over abstract Lua values. The eager path reads the values from the
// Lua stack, capture from its variable trackers (with FakeTensors and symbolic numbers). So one binding serves both.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/value.h"
#include "ops/defs/op.h"

struct lua_State;

namespace lutra {

// Thrown under capture if the tensor of out= has to take other sizes.
struct OtherSizes : NeedsData {
  using NeedsData::NeedsData;
};

enum class LuaKind : uint8_t { kNil, kBoolean, kNumber, kInt64, kComplex, kString, kTensor, kTable, kFunction, kOther };

// A call's arguments. Handles 0 .. count()-1 are the arguments; index and field make further ones.
class ArgReader {
 public:
  using H = int;
  virtual ~ArgReader() = default;
  virtual int count() const = 0;
  virtual LuaKind kind(H h) = 0;  // kNil beyond count()
  virtual bool boolean(H h) = 0;
  virtual Scalar number(H h) = 0;  // kNumber (perhaps symbolic), kInt64 or kComplex cdata
  virtual std::string string(H h) = 0;
  virtual Tensor tensor(H h) = 0;
  virtual int64_t length(H table) = 0;      // border of the list part
  virtual H index(H table, int64_t i) = 0;  // 1-based
  virtual H field(H table, const char* key) = 0;
  virtual std::vector<std::string> keys(H table) = 0;  // string keys; each other key is a "?"
  virtual std::string describe(H h) = 0;               // the value as errors name it: "number 3", "a table"
  // release(mark) invalidates the handles made after mark(). For tables with many elements.
  virtual H mark() { return 0; }
  virtual void release(H) {}
};

// One result of a binding as Lua sees it: Tensor, vector<Tensor> (a table), Scalar (number, exact int64 cdata beyond
// 2^53, boolean), bool, Sizes (a fresh table of numbers), DType or string (a string), None (nil).
using LuaResults = std::vector<Value>;

enum BindingFlags : uint32_t {
  kNeedsData = 1,   // reads elements (item, totable, tostring): a graph break under capture
  kMethod = 2,      // x:name()
  kFunctionOf = 4,  // lt.name()
  kHostEffect = 8,  // changes something outside tensors (seed, config): a graph break under capture
  kDraws = 16,      // accepts generator=
};

struct Binding {
  std::string name;
  uint32_t flags;
  LuaResults (*fn)(const Binding& self, ArgReader& in);
  OpId op = OpId::kCount;  // for bindings of one op's own row
  bool inplace = false;
  bool copies = false;  // results are copies of the op's results: views become tensors with memory of their own
  // Instead of fn: works on the Lua stack itself (totable, register_hook, config). Such a binding has kNeedsData or
  // kHostEffect, so capture breaks the graph at it.
  int (*raw)(lua_State* L) = nullptr;
  std::vector<const std::vector<ArgInfo>*> schemas = {};  // of its forms; empty if no schema can describe them
  const std::vector<struct Form>* forms = nullptr;        // for an op's name with rows in forms.def
  const struct HostFunction* host = nullptr;  // for a function that is not an op: its first row (functions.h)
};

// Returns whether the function is in a subtable of lt: special.expit, nn.functional.relu.
inline bool in_room(const Binding& binding) { return binding.name.find('.') != std::string::npos; }

// Attributes of tensors: x.shape, x.grad = t.
struct Attribute {
  const char* name;
  LuaResults (*get)(const Tensor& self);
  void (*set)(const Tensor& self, ArgReader& in, ArgReader::H value);  // null: read only
};

// All rows; built once. Every bound C function in Lua is `binding_entry` with upvalue 1 a light userdata Binding*.
const std::vector<Binding>& bindings();
// Returns the schemas of its forms, including keywords in addition to the op's own; empty if no schema can describe its
// arguments.
std::vector<std::vector<ArgInfo>> forms_of(const Binding& binding);
// Return a binding with only the forms that are valid for a method, or for a function; the binding itself if all are.
const Binding& as_method(const Binding& binding);
const Binding& as_function(const Binding& binding);
const Binding* find_method(std::string_view name);
const Attribute* find_attribute(std::string_view name);
std::span<const Attribute> attributes();

// x[index] and x[index] = value, for every form of index (indexing.h).
Tensor index_get(const Tensor& self, ArgReader& in, ArgReader::H index);
void index_set(const Tensor& self, ArgReader& in, ArgReader::H index, ArgReader::H value);
// Finds the binding of a metamethod ("__add" for a + b).
const Binding* find_metamethod(std::string_view name);

}  // namespace lutra
