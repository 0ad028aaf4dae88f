// The fast executor. In: a guard program. Out: machine code that reads LuaJIT's structs through vm/mirror. It leaves
// the same registers on the Lua stack as the witness (run_guards).
#pragma once
#include <memory>

#include "ops/core/dense.h"
#include "vm/guard/program.h"

namespace lutra {

class NativeGuards : public Dense {
 public:
  virtual ~NativeGuards() = default;
  // Returns what run_guards returns, or kUnsure: the witness must decide (rare cases that only the public API can
  // answer).
  static constexpr int kUnsure = -2;
  virtual int run(lua_State* L, const CallValues& call, GuardValues* out) = 0;
};

// Makes guards whose machine code is made when they run for the second time. constants, weak: stack indexes of the
// entry's tables. The tables and the program must outlive the guards. Returns null if the mirror is not available.
std::unique_ptr<NativeGuards> make_guards(lua_State* L, const GuardProgram& program, int constants, int weak);
// Makes guards with machine code from the first run on. Also returns null if asmjit fails.
std::unique_ptr<NativeGuards> compile_guards(lua_State* L, const GuardProgram& program, int constants, int weak);

}  // namespace lutra
