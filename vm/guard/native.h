// The fast executor: a guard program in, machine code out that reads LuaJIT's structs through vm/mirror. It leaves the
// same registers on the Lua stack as the witness (run_guards).
#pragma once
#include <memory>

#include "ops/core/dense.h"
#include "vm/guard/program.h"

namespace lutra {

class NativeGuards : public Dense {
 public:
  virtual ~NativeGuards() = default;
  // As run_guards. kUnsure: the witness must decide (rare cases that only the public API answers).
  static constexpr int kUnsure = -2;
  virtual int run(lua_State* L, int nslots, int nargs, int self, GuardValues* out) = 0;
};

// constants, weak: stack indexes of the entry's tables. They and the program must outlive the guards, whose code is
// made when they are run the second time. Null where the mirror is not available.
std::unique_ptr<NativeGuards> make_guards(lua_State* L, const GuardProgram& program, int constants, int weak);
// With code from the first run on. Null where asmjit fails, too.
std::unique_ptr<NativeGuards> compile_guards(lua_State* L, const GuardProgram& program, int constants, int weak);

}  // namespace lutra
