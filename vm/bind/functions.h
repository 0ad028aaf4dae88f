// Rows for what Lua can call beyond ops: what asks about tensors, changes state, or gives Lua other results than an op
// does. A row's schema is written as in ops.def; rows of one name that follow one another are forms, and the first
// whose kinds of arguments fit is called.
#pragma once
#include <span>

#include "ops/defs/call.h"
#include "vm/bind/binding.h"

namespace lutra {

struct HostFunction {
  const char* name;
  const char* schema;
  uint32_t flags;  // BindingFlags
  LuaResults (*fn)(Args& args);
};

// A binding whose arguments no schema can say: over readers, or on the Lua stack itself.
struct Special {
  const char* name;
  uint32_t flags;
  LuaResults (*fn)(const Binding& self, ArgReader& in);
  int (*raw)(lua_State* L);
};

std::span<const HostFunction> query_rows();     // queries.cc
std::span<const HostFunction> compare_rows();   // compare.cc
std::span<const HostFunction> tensor_rows();    // tensor_methods.cc
std::span<const HostFunction> autograd_rows();  // autograd.cc
std::span<const HostFunction> index_rows();     // indexing.cc
std::span<const HostFunction> pool_rows();      // pools.cc
std::span<const HostFunction> resize_rows();    // resize.cc
std::span<const Special> creation_specials();   // creation.cc
std::span<const Special> tensordot_specials();  // tensordot.cc
std::span<const Special> histogram_specials();  // histogram.cc
std::span<const Special> tensor_specials();
std::span<const Special> autograd_specials();
std::span<const Special> system_specials();    // system.cc
std::span<const Special> cuda_specials();      // cuda.cc
std::span<const Special> save_specials();      // save.cc
std::span<const Special> foreign_specials();   // foreign.cc
std::span<const Special> describe_specials();  // describe.cc
std::span<const Special> json_specials();      // json.cc
std::span<const Special> control_specials();   // control.cc
std::span<const Special> profile_specials();   // profile.cc
std::span<const Special> repro_specials();     // repro.cc
void tell_places();                            // launches on GPUs are told with the line that they come from

constexpr uint32_t kBoth = kMethod | kFunctionOf;

// -- binding arguments (arguments.cc)
// A keyword accepted beyond the schema (out=, requires_grad=); value is set when it was given and not nil.
struct ExtraKeyword {
  const char* name;
  ArgReader::H value = -1;
};
// Arguments by a schema: positional, then one trailing keyword table; PyTorch's names, input or self, size or shape;
// spread sizes. Throws an Error that names fn, the argument and its value.
Args bind_schema(const std::string& fn, const std::vector<ArgInfo>& schema, ArgReader& in,
                 std::span<ExtraKeyword> extras);
using Schema = const std::vector<ArgInfo>*;
// Which of several forms the arguments' number, names and kinds fit. Where they fit none, the error of the closest one;
// `extras` are keywords beyond the schemas.
size_t choose_form(const std::string& fn, std::span<const Schema> forms, ArgReader& in,
                   std::span<const ExtraKeyword> extras);
// A whole number, or an error naming fn and argument. Symbolic numbers that are not sizes are pinned.
SymInt read_int(const std::string& fn, const std::string& argument, ArgReader& in, ArgReader::H h);
// "cuda:1" or a GPU's index; read_device: one that is there.
Device parse_device(const std::string& fn, const std::string& argument, ArgReader& in, ArgReader::H h);
Device read_device(const std::string& fn, const std::string& argument, ArgReader& in, ArgReader::H h);

// A generator made by lt.Generator (a table of its seed and its next call) in the place of lt's own, for a scope.
class GeneratorScope {
 public:
  GeneratorScope(const std::string& fn, ArgReader& in, const ExtraKeyword& keyword);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  void keep();  // what has been drawn, in the table

 private:
  Generator saved_;
  lua_State* L_ = nullptr;
  int table_ = 0;
};

// -- writing ops briefly
// out= of a function that is no op: result where there is none, else out with result written into it.
Tensor written_out(const std::string& fn, const Value& out, const Tensor& result);
// dim of t, wrapped from negatives; throws naming fn.
int64_t wrap_dim(const char* fn, int64_t dim, int64_t rank);
// Sets requires_grad with PyTorch's conditions.
void set_requires_grad(const Tensor& t, bool on, const char* fn = "requires_grad");
Tensor get_grad(const Tensor& t);
// t stays the object that it is and takes from's memory, layout and dtype: x.data = y.
void set_data(const Tensor& t, const Tensor& from);
// The device of creation ops that are given none (lt.set_default_device, --device).
Value default_device_value();

}  // namespace lutra
