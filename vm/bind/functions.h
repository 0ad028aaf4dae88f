// Rows for functions that Lua can call beyond ops: queries about tensors, changes of state, and functions whose results
// are not those of an op. A row's schema is written as in ops.def. Consecutive rows of one name are forms; the first
// one whose argument kinds fit is called.
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

// A binding whose arguments no schema can describe. It uses an ArgReader, or the Lua stack itself.
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
void tell_places();                            // makes reports of GPU launches name the line that caused them

constexpr uint32_t kBoth = kMethod | kFunctionOf;

// -- binding arguments (arguments.cc) A keyword that is accepted in addition to the schema (out=, requires_grad=).
// value is set if it was given and is not nil.
struct ExtraKeyword {
  const char* name;
  ArgReader::H value = -1;
};
// Binds arguments to a schema: positional ones, then one trailing keyword table. It accepts PyTorch's other names
// (input or self, size or shape) and sizes as separate arguments. Throws an Error that names fn, the argument and its
// value.
Args bind_schema(const std::string& fn, const std::vector<ArgInfo>& schema, ArgReader& in,
                 std::span<ExtraKeyword> extras);
using Schema = const std::vector<ArgInfo>*;
// Returns the index of the form that fits the arguments' number, names and kinds. If none fits, returns the closest
// one, whose errors then apply. `extras` are keywords in addition to the schemas.
size_t choose_form(const std::string& fn, std::span<const Schema> forms, ArgReader& in,
                   std::span<const ExtraKeyword> extras);
// Reads a whole number, or throws an error that names fn and argument. Pins symbolic numbers that are not sizes.
SymInt read_int(const std::string& fn, const std::string& argument, ArgReader& in, ArgReader::H h);
// Read a device: "cuda:1" or a GPU's index. read_device also checks that the device exists.
Device parse_device(const std::string& fn, const std::string& argument, ArgReader& in, ArgReader::H h);
Device read_device(const std::string& fn, const std::string& argument, ArgReader& in, ArgReader::H h);

// Replaces lt's default generator for a scope by one made by lt.Generator (a table of its seed and its next call).
class GeneratorScope {
 public:
  GeneratorScope(const std::string& fn, ArgReader& in, const ExtraKeyword& keyword);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  void keep();  // stores the advanced generator in the table

 private:
  Generator saved_;
  lua_State* L_ = nullptr;
  int table_ = 0;
};

// -- writing ops briefly Handles out= of a function that is not an op: returns result if out is none, else writes
// result into out and returns that.
Tensor written_out(const std::string& fn, const Value& out, const Tensor& result);
// Wraps a negative dim; throws an error that names fn if it is out of range.
int64_t wrap_dim(const char* fn, int64_t dim, int64_t rank);
// Sets requires_grad with PyTorch's conditions.
void set_requires_grad(const Tensor& t, bool on, const char* fn = "requires_grad");
Tensor get_grad(const Tensor& t);
// Implements x.data = y: gives t the memory, layout and dtype of `from`. t stays the same object.
void set_data(const Tensor& t, const Tensor& from);
// Returns the device of creation ops without a device argument (lt.set_default_device, --device).
Value default_device_value();

}  // namespace lutra
