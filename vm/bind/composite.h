// Rows for what Lua can call beyond ops: compositions of ops, queries, state. A row's schema is written as in ops.def;
// rows of one name that follow one another are overloads, and the first whose argument kinds fit is called.
#pragma once
#include <span>

#include "ops/defs/call.h"
#include "vm/bind/binding.h"

namespace lutra {

struct Composite {
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

std::span<const Composite> creation_rows();   // creation.cc
std::span<const Composite> shape_rows();      // shapes.cc
std::span<const Composite> split_rows();      // splits.cc
std::span<const Composite> reduction_rows();  // reductions.cc
std::span<const Composite> random_rows();     // random.cc
std::span<const Composite> math_rows();       // math.cc
std::span<const Composite> tensor_rows();     // tensor_methods.cc
std::span<const Composite> autograd_rows();   // autograd.cc
std::span<const Composite> index_rows();      // indexing.cc
std::span<const Composite> resample_rows();   // resample.cc
std::span<const Composite> network_rows();    // network.cc
std::span<const Special> creation_specials();
std::span<const Special> reduction_specials();
std::span<const Special> tensor_specials();
std::span<const Special> autograd_specials();
std::span<const Special> system_specials();    // system.cc
std::span<const Special> cuda_specials();      // cuda.cc
std::span<const Special> save_specials();      // save.cc
std::span<const Special> describe_specials();  // describe.cc
std::span<const Special> json_specials();      // json.cc
std::span<const Special> profile_specials();   // profile.cc
void tell_places();                            // launches on GPUs are told with the line that they come from

constexpr uint32_t kBoth = kMethod | kFunctionOf;

// -- binding arguments (arguments.cc)
// A keyword accepted beyond the schema (out=, requires_grad=); value is set when it was given and not nil.
struct ExtraKeyword {
  const char* name;
  ArgReader::H value = -1;
};
Args bind_schema(const std::string& fn, const std::vector<ArgInfo>& schema, ArgReader& in,
                 std::span<ExtraKeyword> extras);
// Whether the arguments' number, names and kinds fit (for overloads); `extra` is a keyword beyond the schema.
bool fits_schema(const std::vector<ArgInfo>& schema, ArgReader& in, const char* extra = "");
// An error that lists the keywords of all forms where a keyword is none of theirs.
void check_keywords(const std::string& fn, std::span<const std::vector<ArgInfo>> forms, ArgReader& in,
                    const char* extra);
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
inline Value vint(SymInt v) { return Scalar::of_sym(v); }
inline Value vnum(double v) { return Scalar(v); }
inline Value vdim(int64_t v) { return Scalar::of_int(v); }
Tensor full_of(const Sizes& sizes, Scalar value, const Value& dtype, const Value& device);
Tensor to_dtype(const Tensor& t, DType dtype);
// dim of t, wrapped from negatives; throws naming fn.
int64_t wrap_dim(const char* fn, int64_t dim, int64_t rank);
// For ops that read elements: throws NeedsData for FakeTensors.
void need_data(const char* fn, const Tensor& t);
// Sets requires_grad with PyTorch's conditions.
void set_requires_grad(const Tensor& t, bool on, const char* fn = "requires_grad");
Tensor get_grad(const Tensor& t);
// The device of creation ops that are given none (lt.set_default_device, --device).
Value default_device_value();

}  // namespace lutra
