// Patched prototypes and closures in; running portals out. What a lua_State needs so that patched bytecode works: the
// `__call` of numbers, string.dump that shows the original, and the anchors that keep prototypes alive.
//
// Invariants:
// 1. A number called by anything but a portal site behaves as if Lutra were absent (another library's __call included).
// 2. A frame that runs while its function is redirected goes on as a frame of another closure, of the same prototype,
//    upvalues and environment. So functions and frames keep the prototypes they run alive, and nothing else does.
// 3. No C++ exception leaves a function that Lua calls.
#pragma once

#include <string>
#include <vector>

#include "ops/core/error.h"
#include "vm/bytecode/dump.h"
#include "vm/mirror/mirror.h"
#include "vm/portal/patch.h"

struct lua_State;

namespace lutra {

// Its text names the place already: no line is put in front.
struct PlacedError : Error {
  explicit PlacedError(const std::string& message) : Error(ErrorKind::kUser, message) {}
};

// Runs portal `id`. The arguments are on the Lua stack from 1 on (nothing else is). Pushes the exit's code and then the
// results and returns how many values that is; pushing nothing, nil or false declines: the original code goes on.
// May raise Lua errors and throw std::exception (raised as a Lua error by the caller).
using PortalFn = int (*)(lua_State* L, int id);

// Once a lua_State; later calls only replace the function.
void install_portals(lua_State* L, PortalFn run);

// Portal ids are 1 .. 2^29. Freed ids are given out again once no prototype that names them is left.
int alloc_portal_id(lua_State* L);
void free_portal_id(lua_State* L, int id);
// Whether a prototype that names the id is alive. Only with the mirror, and as of the last sweep_records.
bool portal_id_named(lua_State* L, int id);
// Forgets the patched prototypes that are gone.
void sweep_records(lua_State* L);

// Pushes a new closure of `patched` over the upvalues and environment of the Lua function at `index` (lt.compile,
// resume closures). Its children are the original's own prototypes where the mirror is available.
void make_clone(lua_State* L, int index, const Patched& patched);
// Likewise, the rest of a frame: the closure that it made last, where that would be the same again.
void make_rest(lua_State* L, int index, const Patched& patched);

// The original prototype of the Lua function at `index`, and the child that is this constant of the prototype at
// `index`; pushed. Only with the mirror, as push_child_closure.
void push_prototype(lua_State* L, int index);
void push_child_prototype(lua_State* L, int index, unsigned constant);
// Which child of a function's prototype, which child of that, ...: constants of the prototypes.
using ChildPath = std::vector<unsigned>;
// Pushes a new closure of the prototype at the end of the path from that of the Lua function at `index`, as the
// function of the prototype before it would make it. Its variables are unset, those that it had shared with the
// function around it belong to nobody. An empty path: of the function's own prototype, not to be called.
void push_child_closure(lua_State* L, int index, const ChildPath& path);
bool can_make_closures(const bc::Proto& child);  // false: there is no room
// Closures of the prototype of the redirected function at `index` that patched code (Patch::born) and makers make from
// now on run what that example runs at the time. It has to live until forget_newborn.
void run_newborn(lua_State* L, int index);
void forget_newborn(lua_State* L, int index);
// Where LuaJIT's traces cannot be flushed, so that no bytecode may change.
bool in_finalizer(lua_State* L);
// One that was born so runs its original code. False where it was not, and in a finalizer.
bool restore_newborn(lua_State* L, int index);
// Pushes the example for the prototype of the function at `index`; false where there is none.
bool push_example(lua_State* L, int index);
// Pushes a function that returns a new table of the template that is this constant of the prototype at `index`: its
// keys lie in memory as those that TDUP makes. Only with the mirror.
void push_table_maker(lua_State* L, int index, unsigned constant);

// Makes room in the array of the table at `index` as a constructor does whose list of results ends at position n - 1:
// which border LuaJIT finds beside a hole, and the order of keys, depend on that.
void make_room(lua_State* L, int index, int n);

// Lets the function at `index` run the prototype of the function at `donor` (made by make_clone of it) from its next
// call on, in place. Empty, or why not ("cannot patch in place: ..."): then only clones are possible.
std::string redirect(lua_State* L, int index, int donor);
// Back to the original prototype; false where the function was not redirected. Frames that run go on as they were.
// Throws inside a finalizer, where LuaJIT does not let traces be flushed.
bool restore(lua_State* L, int index);
bool redirected(lua_State* L, int index);
// Whether the function at `index` was ever redirected, is a clone, or is a copy that running frames were given.
bool was_patched(lua_State* L, int index);
// In a portal that declines: the frame that called it, of the function at `index` (or of the copy that redirection made
// its frames' function), goes on behind portal `id` of the present prototype, the same place. False, and nothing done,
// where that is not possible.
bool move_frame(lua_State* L, int index, int id);
// The version of the Patched that make_clone has loaded the prototype from; 0 where that has none, and for a prototype
// that make_clone has not loaded.
uint64_t version_of(lua_State* L, const mirror::Proto* p);
// The function that the one at `index` is a copy of, which its running frames were given; else that one. Pushed.
void push_function_of_frame(lua_State* L, int index);
// A frame below the running C function goes on, behind the call that it made, in the present prototype of the function
// at `index`. `pc` is that call there. False, and nothing done, where that is not possible.
bool move_frame(lua_State* L, const mirror::LuaFrame& frame, int index, bc::Pc pc);

}  // namespace lutra
