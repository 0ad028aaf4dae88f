// Guard programs as machine code: compiled (native_emit.cc), and run on the values of a portal call.
#include "vm/guard/native.h"

#include <algorithm>
#include <lua.hpp>

#include "jit/runtime/lines.h"
#include "ops/core/small_vec.h"
#include "vm/guard/field_rows.h"
#include "vm/guard/native_emit.h"
#include "vm/guard/native_run.h"

namespace lutra {
namespace {

using mirror::Tab;
using mirror::TValue;

const Tab* metatable_of_strings(lua_State* L) {
  lua_pushliteral(L, "");
  const Tab* found = nullptr;
  if (lua_getmetatable(L, -1)) {
    found = static_cast<const Tab*>(lua_topointer(L, -1));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return found;
}

// Returns the running coroutine as a value; nil for the main one.
uint64_t running_thread(lua_State* L) {
  const bool is_main = lua_pushthread(L);
  const void* thread = lua_topointer(L, -1);
  lua_pop(L, 1);
  return is_main ? mirror::kNilValue : mirror::make_gc(mirror::kThread, thread).u64;
}

struct Code : NativeGuards {
  // The members that a call reads come first, except the end of `emitted`.
  const GuardProgram* program = nullptr;
  const Tab* weak = nullptr;
  int registers = 0;  // the program's, so that a call need not read it
  uint32_t tensors = 0, scalars = 0;
  bool asked = false, failed = false;
  SmallVec<int32_t, 2> unseen;  // tensors of which the code makes no views
  EmittedGuards emitted;
  const Tab* constants = nullptr;

  bool emit() {
    emitted = emit_guards(*program, constants);
    failed = !emitted.code;
    registers = program->registers;
    tensors = uint32_t(program->tensors.size()), scalars = uint32_t(program->scalar_sources.size());
    for (size_t i = 0; i < tensors; i++) {
      const bool seen =
          std::any_of(emitted.rows.begin(), emitted.rows.end(), [&](auto& r) { return r->loads(int32_t(i)); });
      if (!seen) unseen.push_back(int32_t(i));
    }
    return !failed;
  }

  // The witness does the first run, because many segments are run only once after their capture.
  bool is_ready() {
    if (asked) return !failed && emit();
    asked = true;
    return false;
  }

  void note_memory() const {
    constexpr size_t kHot = 320;  // the code behind that is for misses
    note_lines(this, sizeof *this - sizeof emitted - sizeof constants), note_lines(&emitted, sizeof emitted.code + 1);
    note_lines(emitted.code.as<const void*>(), std::min(emitted.code.bytes(), kHot));
    if (emitted.asks_weak) note_lines(weak, sizeof *weak), note_lines(weak->array, 1);
  }

  int run(lua_State* L, const CallValues& call, GuardValues* out) override {
    if (!emitted.code && !is_ready()) return kUnsure;
    if (!lua_checkstack(L, registers + 8)) return kNoRoom;
    const Tab* string_meta = emitted.asks_strings ? metatable_of_strings(L) : nullptr;
    const uint64_t thread = emitted.asks_thread ? running_thread(L) : 0;
    const PrototypeTables prototypes = emitted.asks_prototypes ? prototype_tables(L) : PrototypeTables();
    const int base = lua_gettop(L) + 1;
    lua_settop(L, base - 1 + registers);
    out->base = base;
    out->tensors.reset(tensors);
    out->scalars.assign(scalars, 0);
    if (out->views.size() != tensors) out->views.assign(tensors, {});
    for (int32_t i : unseen) out->views[size_t(i)].data = nullptr;
    if (noted_lines) [[unlikely]]
      note_memory();
    const TValue* stack = mirror::base(L);
    GuardRun run{L,
                 mirror::base(L) + base - 1,
                 stack,
                 weak,
                 stack[call.self - 1],
                 string_meta,
                 prototypes,
                 thread,
                 out->scalars.data(),
                 out->tensors.first(),
                 out->views.data(),
                 call.nargs - call.nslots,
                 stack + call.nslots,
                 program,
                 out};
    const int result = int(emitted.code.as<int64_t (*)(GuardRun*)>()(&run));
    if (result != -1) lua_settop(L, base - 1);
    return result;
  }
};

}  // namespace

std::unique_ptr<NativeGuards> make_guards(lua_State* L, const GuardProgram& program, int constants, int weak) {
  if (!mirror::available(L)) return nullptr;
  auto code = std::make_unique<Code>();
  code->program = &program;
  code->constants = static_cast<const Tab*>(lua_topointer(L, constants));
  code->weak = static_cast<const Tab*>(lua_topointer(L, weak));
  return code;
}

std::unique_ptr<NativeGuards> compile_guards(lua_State* L, const GuardProgram& program, int constants, int weak) {
  std::unique_ptr<NativeGuards> guards = make_guards(L, program, constants, weak);
  if (guards && !static_cast<Code&>(*guards).emit()) guards = nullptr;
  return guards;
}

}  // namespace lutra
