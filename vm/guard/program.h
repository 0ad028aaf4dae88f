// A guard program: the steps that decide whether an entry's code may run, as data. Capture builds it. An executor runs
// it on the values of a portal call, and leaves the values that it loaded; they are the entry's inputs.
// Invariants:
// 1. A step reads registers that earlier steps wrote. Each load writes the next register.
// 2. Loads are raw: no metamethod runs and nothing is allocated. So a check has no effect that Lua could see.
// 3. Objects are compared with slots of a weak table: a collected object is a miss, even if its address is used again.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jit/runtime/host_program.h"
#include "ops/core/tensor.h"
#include "vm/guard/source.h"
#include "vm/guard/symbols.h"
#include "vm/guard/tensors.h"

struct lua_State;

namespace lutra {

enum class GuardOp : uint8_t {
#define GUARD_LOAD(name) name##Load,
#define GUARD_CHECK(name, kind, helper) name##Check,
#include "vm/guard/guard.def"
  kCount
};
bool is_load(GuardOp op);
const char* kind_name(GuardOp op);
// Checks of a setting of the thread (GUARD_MODE rows): the setting's present value, as a number and as text.
bool is_setting(GuardOp op);
int setting(GuardOp op);
std::string setting_text(GuardOp op);

struct GuardStep {
  GuardOp op;
  int a = -1, b = -1;  // registers (tensor inputs for kGrad*)
  int index = 0;
  const Source* source = nullptr;  // source of the checked value
  int prototype = 0;               // for kIdentity of a Lua function: its prototype
  const Source* other = nullptr;   // for kSame, kNotSame: source of the value in b
};

// Sizes that may be symbols. At first sizes 0 and 1 may not, because broadcasting depends on them. The maximum keeps
// sums and small multiples exact in Lua's doubles.
constexpr SymRange kSymbolicSizes{2, int64_t(1) << 40};
// Sizes 0 and 1 may be symbols, too, if the graph guards each fact about them that it needs. Strides are products of
// sizes other than the first, so of these only 1.
constexpr SymRange kOpenSizes{0, kSymbolicSizes.high}, kOpenInnerSizes{1, kSymbolicSizes.high};
inline SymRange open_sizes(size_t dim) { return dim == 0 ? kOpenSizes : kOpenInnerSizes; }
constexpr int64_t kSymbolicSize = -1, kOpenSize = -2;  // in a TensorSpec

// The properties that a tensor must have. A symbolic size is kSymbolicSize or kOpenSize here. A stride that follows
// from one is -1.
struct TensorSpec {
  DType dtype = DType::kFloat32;
  Device device;
  std::vector<int64_t> sizes, strides;
  bool contiguous = false;  // all strides must be contiguous (for specs with strides of -1)
  bool requires_grad = false;
  bool leaf = true;
  bool hooks = false;             // may have hooks
  bool in_shared_memory = false;  // lies in the memory of another input (kMemory)
  bool written = false;  // by the segment: a view has no hooks, because they would get gradients of its old value
};
std::string describe(const TensorSpec& spec);

// A line of the user's program.
struct GuardPlace {
  const char* file = nullptr;
  int line = 0;
};

// Members are registers, tensor inputs (with offsets for kMemory), or upvalues (the function's register and the
// upvalue's index). The segment writes the first `writers`.
struct GuardGroup {
  int writers = 0;
  std::vector<std::pair<int, int>> members;
};

struct GuardProgram {
  std::vector<GuardStep> steps;
  std::vector<TensorSpec> tensors;  // one for each tensor input
  std::vector<const Source*> tensor_sources;
  std::vector<const Source*> scalar_sources;
  std::vector<std::vector<int>> keys;  // kKeys: constants, in order
  std::vector<GuardGroup> groups;
  std::vector<int> written;        // tensor inputs that the graph writes
  bool may_share_storage = false;  // written inputs and others may be parts of one memory if they do not overlap
  SymbolProgram symbols;
  std::vector<GuardPlace> relation_places;  // the lines that caused them, one for each guard of symbols
  GuardPlace start;                         // of the segment; the place of checks that read no value
  int registers = 0;
  std::vector<std::string> expected;  // for reports: what step i expects, if the step itself does not contain it
};

// The values that an executor loads on a hit.
struct GuardValues {
  int base = 0;                  // stack index of register 0
  GuardTensors tensors;          // by tensor input
  std::vector<InputView> views;  // likewise, made by machine code; data is null if the code does not know it
  std::vector<double> scalars;   // by scalar input
  std::vector<SymbolValue> symbols;
  std::vector<Value> outputs;  // of the run that the values are for
};

// Returns the identity of the prototype of the Lua function at `index`; kLibraryFunction for an assembly function of
// LuaJIT, such as those that coroutine.wrap returns; 0 for another C function.
constexpr int kLibraryFunction = -1;
int prototype_number(lua_State* L, int index);

// The values of a portal call on the Lua stack: 1 .. nslots are slots of the frame, nslots + 1 .. nargs its varargs.
// Its function is at stack index `self`.
struct CallValues {
  int nslots = 0, nargs = 0, self = 0;
};

// Runs `program` on the values of a call over the public Lua API (the witness). `tables` is the stack index of the
// entry's table of constants; its weak table is the next value. Returns -1 on a hit, with the registers pushed on the
// stack. Otherwise returns the index of the step that failed, or kNoRoom, and leaves the stack as it was.
int run_guards(lua_State* L, const GuardProgram& program, const CallValues& call, int tables, GuardValues* out);

// A result of run_guards and NativeGuards::run: the stack has no room for the registers. It is neither a hit nor a
// reason to capture.
constexpr int kNoRoom = -3;

// Returns whether no writer of the group is another member. Members are the same if their ids are equal.
bool distinct(const GuardGroup& group, const void* const* ids);

// Returns the element of a tensor on the CPU that has exactly one; otherwise nothing.
std::optional<double> only_element(const Tensor& t);

// Returns whether the positive integer keys of the table at `index` are 1 .. n.
bool is_list(lua_State* L, int index, int64_t n);

// Makes the first member the memory of the others. Returns false if they do not lie in it as required (kMemory).
bool load_memory(const GuardProgram& program, const GuardGroup& group, GuardTensors& tensors);

// Returns whether written tensor inputs share memory with other inputs (the kOverlap check).
bool overlaps(const GuardProgram& program, const std::vector<Tensor>& tensors);

// Returns a text for the value that step `failed` found ("nil", "float32[3, 4]", "number 3"). Runs the steps before it
// again. relation: for a kSymbols step, the guard that does not hold; else -1.
std::string describe_found(lua_State* L, const GuardProgram& program, int failed, const CallValues& call, int tables,
                           int* relation);
// The facts of a tensor that a spec states.
enum class TensorFact : uint8_t { kDType, kDevice, kRank, kSize, kStride, kRequiresGrad, kIsLeaf, kHooks, kFreed };
const char* name(TensorFact fact);
// The first fact in which a tensor differs from its spec.
struct TensorMiss {
  TensorFact fact = TensorFact::kDType;
  int dim = -1;
  std::string old_text, new_text;
};
bool matches(const Tensor& t, const TensorSpec& spec, TensorMiss* miss);

std::string print(const GuardProgram& program);
// Returns an error text that names a step with an invalid operand, or an empty string.
std::string verify(const GuardProgram& program);
// Returns what step i expects, as text.
std::string expected_text(const GuardProgram& program, size_t i);
// Returns the values of the sizes and numbers in guard `i` of the symbols: "x.shape[1] = 5, n = 3".
std::string relation_values(const GuardProgram& program, int i, const std::vector<Tensor>& tensors,
                            const std::vector<double>& scalars);
// Returns guard `i` of the symbols, with its leaves named by their sources: "x.shape[1] == y.shape[1]".
std::string relation_text(const GuardProgram& program, int i);
// Returns an expression of the trace's env, with the names of its sources: "n + 1".
std::string number_text(const GuardProgram& program, const SymEnv& env, int32_t expr);
std::string relations_text(const GuardProgram& program);
// Returns the source of the first value in guard `i` of the symbols; null if there is none.
const Source* relation_source(const GuardProgram& program, int i);
// Returns the place where the value that a step checks was first read.
GuardPlace place_of(const GuardProgram& program, const GuardStep& step);

}  // namespace lutra
