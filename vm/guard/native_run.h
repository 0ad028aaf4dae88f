// A run of guards' machine code, and the functions that the code calls. A column of guard.def names the function of
// each guard.
#pragma once
#include "vm/guard/native.h"
#include "vm/mirror/prototypes.h"

namespace lutra {

struct GuardRun {
  lua_State* L;
  mirror::TValue* regs;  // the program's registers
  const mirror::TValue* args;
  const mirror::Tab* weak;
  mirror::TValue self;
  const mirror::Tab* string_meta;  // null if the program does not read it
  PrototypeTables prototypes;      // likewise
  uint64_t thread;                 // likewise; the running coroutine, or nil for the main one
  double* scalars;
  void* tensors;  // the first loaded tensor
  InputView* views;
  int64_t varargs;
  const mirror::TValue* first_vararg;
  const GuardProgram* program;
  GuardValues* out;
};

// A check with GuardStep::a and index. Returns 1 (holds), 0 (fails) or NativeGuards::kUnsure.
using GuardHelper = int64_t (*)(GuardRun* run, int64_t a, int64_t index) noexcept;
GuardHelper helper_of(GuardOp op);  // null if the code does the check itself

// The checks kOwnVariable and kNotOwnVariable, for both executors. They need the mirror, without which capture does not
// make these checks.
bool is_own_variable(lua_State* L, const mirror::Func* f, int index);
bool is_not_own_variable(lua_State* L, const mirror::Func* f, int index);

constexpr int kCdataType = 10;  // LUA_TCDATA, which LuaJIT's headers do not define

// A cdata that holds a 64-bit integer.
struct IntegerCdata {
  uint64_t nextgc;
  uint8_t marked, gct;
  uint16_t type;
  uint64_t value;
};
// The check kCdata, for both executors. `cdata` may have any type; `integer` is a 64-bit integer.
bool is_same_integer(const void* cdata, const void* integer);
int64_t equal_integers(uint64_t a, uint64_t integer) noexcept;

uint64_t get_field(const mirror::Tab* t, uint64_t key) noexcept;
uint64_t get_length(const mirror::Tab* t) noexcept;
uint64_t get_size(uint64_t value, int64_t dim) noexcept;
uint64_t get_computed(uint64_t a, uint64_t b, int64_t op) noexcept;
uint64_t double_bits(uint64_t value) noexcept;  // value: a number
uint64_t get_offset(uint64_t value) noexcept;
uint64_t get_element(uint64_t value) noexcept;
// Returns the number that equals the cdata's 64-bit integer of type `type`; nothing if there is none.
std::optional<double> number_of_integer(const void* cdata, int type);
uint64_t get_integer(const void* cdata, int64_t type) noexcept;
uint64_t get_hook(uint64_t leaf, int64_t k, const GuardRun* run) noexcept;
uint64_t get_seeded(uint64_t seed, int64_t index) noexcept;
uint64_t get_random(const mirror::Func* f, int64_t index) noexcept;  // f: a math.random
void load_grad(GuardRun* run, int64_t from, int64_t to) noexcept;
int64_t equal_values(uint64_t a, uint64_t b) noexcept;
int64_t check_keys(const mirror::Tab* t, const mirror::TValue* keys, int64_t count) noexcept;

}  // namespace lutra
