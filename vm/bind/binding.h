// Bindings: what Lua can call, as functions over abstract Lua values. The eager path reads them from the Lua stack;
// capture reads them from its variable trackers (with FakeTensors and symbolic numbers). One binding so serves both.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/value.h"
#include "ops/defs/op.h"

struct lua_State;

namespace lutra {

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
  virtual std::vector<std::string> keys(H table) = 0;  // string keys; others are listed as "?"
  virtual std::string describe(H h) = 0;               // as errors name the value: "number 3", "a table"
  // Handles made after mark() are forgotten by release(mark): for tables with many elements.
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
  kDraws = 16,      // takes generator=
};

struct Binding {
  std::string name;
  uint32_t flags;
  LuaResults (*fn)(const Binding& self, ArgReader& in);
  OpId op = OpId::kCount;  // for bindings of one op's own row
  bool inplace = false;
  bool copies = false;  // results are copies of what the op gives: views in memory of their own
  // Instead of fn: works on the Lua stack itself (totable, register_hook, config). Such a binding has kNeedsData or
  // kHostEffect, so capture breaks the graph at it.
  int (*raw)(lua_State* L) = nullptr;
  std::vector<const std::vector<ArgInfo>*> schemas = {};  // of its forms; none where no schema can say its arguments
  const std::vector<struct Form>* forms = nullptr;        // of an op's name that has rows in forms.def
  const struct HostFunction* host = nullptr;              // of a function that is no op (functions.h): its first row
};

// Whether it stands in a table of lt's own: special.expit, nn.functional.relu.
inline bool in_room(const Binding& binding) { return binding.name.find('.') != std::string::npos; }

// Attributes of tensors: x.shape, x.grad = t.
struct Attribute {
  const char* name;
  LuaResults (*get)(const Tensor& self);
  void (*set)(const Tensor& self, ArgReader& in, ArgReader::H value);  // null: read only
};

// All rows; built once. Every bound C function in Lua is `binding_entry` with upvalue 1 a light userdata Binding*.
const std::vector<Binding>& bindings();
// The schemas that its arguments may follow, with the keywords beside an op's own; none where no schema can say them.
std::vector<std::vector<ArgInfo>> forms_of(const Binding& binding);
// A binding with those of its forms that stand where it is a method, or a function: itself where all do.
const Binding& as_method(const Binding& binding);
const Binding& as_function(const Binding& binding);
const Binding* find_method(std::string_view name);
const Attribute* find_attribute(std::string_view name);
std::span<const Attribute> attributes();

// x[index] and x[index] = value, for every form of index (indexing.h).
Tensor index_get(const Tensor& self, ArgReader& in, ArgReader::H index);
void index_set(const Tensor& self, ArgReader& in, ArgReader::H index, ArgReader::H value);
// a + b and the like: metamethod name ("__add") to binding.
const Binding* find_metamethod(std::string_view name);

}  // namespace lutra
