// A guard program: the steps that decide whether an entry's code may run, as data. Capture builds it; an executor runs
// it on the values of a portal call and leaves the loaded values behind (they are the entry's inputs).
// Invariants:
// 1. A step reads registers that earlier steps wrote. Each load writes the next register.
// 2. Loads are raw: no metamethod runs, nothing is allocated, so a check has no effect that Lua could see.
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
// Checks of a setting of the thread (GUARD_MODE rows): what it is now, as a number and for people.
bool is_setting(GuardOp op);
int setting(GuardOp op);
std::string setting_text(GuardOp op);

struct GuardStep {
  GuardOp op;
  int a = -1, b = -1;  // registers (tensor inputs for kGrad*)
  int index = 0;
  const Source* source = nullptr;  // of the value that is checked
  int prototype = 0;               // kIdentity of a Lua function: its prototype
  const Source* other = nullptr;   // kSame, kNotSame
};

// Sizes that may be symbols. 0 and 1 are not: broadcasting decides by them; sums and small multiples of the others are
// what Lua's doubles make of them.
constexpr SymRange kSymbolicSizes{2, int64_t(1) << 40};
// Where the graph asks what it has to know of them, they may be.
constexpr SymRange kOpenSizes{0, kSymbolicSizes.high};
constexpr int64_t kSymbolicSize = -1, kOpenSize = -2;  // in a TensorSpec

// What a tensor must be like. A dim whose size is symbolic has kSymbolicSize or kOpenSize here, a stride that follows
// from it -1.
struct TensorSpec {
  DType dtype = DType::kFloat32;
  Device device;
  std::vector<int64_t> sizes, strides;
  bool contiguous = false;  // strides must be contiguous (where some are -1)
  bool requires_grad = false;
  bool leaf = true;
  bool hooks = false;    // may have hooks
  bool within = false;   // lies in the memory of another input (kMemory)
  bool written = false;  // by the segment: if it is a view, it has no hooks, which would see gradients of its old value
};
std::string describe(const TensorSpec& spec);

// A line of the user's program.
struct GuardPlace {
  const char* file = nullptr;
  int line = 0;
};

// Members: registers, tensor inputs (of kMemory with offsets), or upvalues (a function's register, index). The first
// `writers` are what the segment writes.
struct GuardGroup {
  int writers = 0;
  std::vector<std::pair<int, int>> members;
};

struct GuardProgram {
  std::vector<GuardStep> steps;
  std::vector<TensorSpec> tensors;  // one a tensor input
  std::vector<const Source*> tensor_sources;
  std::vector<const Source*> scalar_sources;
  std::vector<std::vector<int>> keys;  // kKeys: constants, in order
  std::vector<GuardGroup> groups;
  std::vector<int> written;  // tensor inputs that the graph writes
  bool parts = false;        // written inputs and others may be parts of one memory that do not overlap
  SymbolProgram symbols;
  std::vector<GuardPlace> relation_places;  // the lines that asked, one a guard of symbols
  GuardPlace start;                         // of the segment: the place of checks that read no value
  int registers = 0;
  std::vector<std::string> expected;  // for reports: what step i wants, where the step does not say it itself
};

// What an executor leaves behind on a hit.
struct GuardValues {
  int base = 0;                  // stack index of register 0
  GuardTensors tensors;          // by tensor input
  std::vector<InputView> views;  // likewise, where machine code has loaded them: without data where it does not know
  std::vector<double> scalars;   // by scalar input
  std::vector<SymbolValue> symbols;
};

// The identity of the prototype of the Lua function at `index`; kLibraryFunction for one that LuaJIT has in assembly,
// as those that coroutine.wrap gives; 0 for another C function.
constexpr int kLibraryFunction = -1;
int prototype_number(lua_State* L, int index);

// The witness: runs `program` over the public Lua API on the arguments at stack 1 .. nargs (with `nslots` of them
// slots, the rest varargs) of the function at `self`. constants and weak are stack indexes of the entry's tables.
// Registers are pushed on the stack. Returns -1 on a hit, else the index of the step that failed (or kNoRoom); the
// stack is then as before.
int run_guards(lua_State* L, const GuardProgram& program, int nslots, int nargs, int self, int constants, int weak,
               GuardValues* out);

// run_guards, NativeGuards::run: the stack has no room for the registers. Neither a hit nor a reason to capture.
constexpr int kNoRoom = -3;

// Whether no writer of the group is another member; ids are what tells members apart.
bool distinct(const GuardGroup& group, const void* const* ids);

// The element of a tensor that has one, in the memory of a CPU; none of others.
std::optional<double> only_element(const Tensor& t);

// Whether the positive whole keys of the table at `index` are 1 .. n.
bool is_list(lua_State* L, int index, int64_t n);

// Makes the first member the memory of the others. False where they do not lie in it as they should (kMemory).
bool load_memory(const GuardProgram& program, const GuardGroup& group, GuardTensors& tensors);

// Whether tensor inputs that are written share memory with others (the kOverlap check).
bool overlaps(const GuardProgram& program, const std::vector<Tensor>& tensors);

// How the value that step `failed` found reads ("nil", "float32[3, 4]", "number 3"). Runs the steps before it again.
// relation: of a kSymbols step, the guard that does not hold; else -1.
std::string describe_found(lua_State* L, const GuardProgram& program, int failed, int nslots, int nargs, int self,
                           int constants, int weak, int* relation);
// What a spec says of a tensor.
enum class TensorFact : uint8_t { kDType, kDevice, kRank, kSize, kStride, kRequiresGrad, kIsLeaf, kHooks, kFreed };
const char* name(TensorFact fact);
// Steps whose value is a tensor: the first fact in which it differs from its spec.
struct TensorMiss {
  TensorFact fact = TensorFact::kDType;
  int dim = -1;
  std::string old_text, new_text;
};
bool matches(const Tensor& t, const TensorSpec& spec, TensorMiss* miss);

std::string print(const GuardProgram& program);
// An empty string, or which step names what does not exist.
std::string verify(const GuardProgram& program);
// What step i wants, as text.
std::string expected_text(const GuardProgram& program, size_t i);
// What the sizes and numbers of guard `i` of the symbols are: "x.shape[1] = 5, n = 3".
std::string relation_values(const GuardProgram& program, int i, const std::vector<Tensor>& tensors,
                            const std::vector<double>& scalars);
// Guard `i` of the symbols with its leaves named by their sources: "x.shape[1] == y.shape[1]".
std::string relation_text(const GuardProgram& program, int i);
// An expression of the trace's env, with the names of its sources: "n + 1".
std::string number_text(const GuardProgram& program, const SymEnv& env, int32_t expr);
std::string relations_text(const GuardProgram& program);
// The first value that it is about; null where there is none.
const Source* relation_source(const GuardProgram& program, int i);
// Where the value that a step checks was read first.
GuardPlace place_of(const GuardProgram& program, const GuardStep& step);

}  // namespace lutra
