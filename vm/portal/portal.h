// Runs patched prototypes in a lua_State: the `__call` of numbers that runs portals, a string.dump that returns the
// original, and the anchors that keep prototypes alive.
//
// Invariants:
// 1. A number that is called anywhere but at a portal site behaves as if Lutra were absent (including another library's
//    __call).
// 2. A frame that runs while its function is redirected becomes a frame of another closure with the same prototype,
//    upvalues and environment. So only functions and frames keep the prototypes that they run alive.
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

// An error whose message already contains the position, so that no line is put in front.
struct PlacedError : Error {
  explicit PlacedError(const std::string& message) : Error(ErrorKind::kUser, message) {}
};

// Runs portal `id`. The Lua stack holds only the arguments. Pushes the exit's code and then the results, and returns
// the number of these values. If it pushes nothing, nil or false, it declines, and the original code continues. May
// raise Lua errors and throw std::exception (which the caller raises as a Lua error).
using PortalFn = int (*)(lua_State* L, int id);

// Installs portals in a lua_State; later calls only replace the function.
void install_portals(lua_State* L, PortalFn run);

// Portal ids are 1 .. 2^29. Freed ids are reused once no prototype with a call of them is left.
int alloc_portal_id(lua_State* L);
void free_portal_id(lua_State* L, int id);
// Returns whether a prototype with a call of the id was alive at the last sweep_records. Only with the mirror.
bool portal_id_named(lua_State* L, int id);
// Removes the records of patched prototypes that were collected.
void sweep_records(lua_State* L);

// Pushes a new closure of `patched` over the upvalues and environment of the Lua function at `index` (lt.compile,
// resume closures). Its children are the original's own prototypes if the mirror is available.
void make_clone(lua_State* L, int index, const Patched& patched);
// Does the same for the rest of a frame. Reuses the last closure that it made if a new one would be the same.
void make_rest(lua_State* L, int index, const Patched& patched);

// Push the original prototype of the Lua function at `index`; the child that is this constant of the prototype at
// `index`. Only with the mirror, as push_child_closure.
void push_prototype(lua_State* L, int index);
void push_child_prototype(lua_State* L, int index, unsigned constant);
// A path of children from a function's prototype: the constant of a child in it, the constant of a child in that one,
// ...
using ChildPath = std::vector<unsigned>;
// Pushes a new closure of the prototype at the end of the path, which starts at the prototype of the Lua function at
// `index`. It is the closure that a function of its parent prototype would make, but its upvalues are unset and shared
// with nothing. An empty path: a closure of the function's own prototype, not to be called.
void push_child_closure(lua_State* L, int index, const ChildPath& path);
bool can_make_closures(const bc::Proto& child);  // false if a frame has no room for the captured slots
// Makes the redirected function at `index` the example for its prototype: new closures of that prototype, made by
// patched code (Patch::newborn_children) and makers, run the code that the example then runs. The example must stay
// alive until forget_newborn.
void run_newborn(lua_State* L, int index);
void forget_newborn(lua_State* L, int index);
// Returns whether a finalizer runs. LuaJIT's traces cannot be flushed there, so no bytecode may change.
bool in_finalizer(lua_State* L);
// Makes a closure that adopted an example's code run its original code. Returns false if it did not adopt one, and in a
// finalizer.
bool restore_newborn(lua_State* L, int index);
// Pushes the example for the prototype of the function at `index`. Returns false if there is none.
bool push_example(lua_State* L, int index);
// Pushes a function that returns new tables from the template that is this constant of the prototype at `index`. Their
// memory layout is that of TDUP. Only with the mirror.
void push_table_maker(lua_State* L, int index, unsigned constant);

// Makes room in the array of the table at `index`, as a constructor does whose list of results ends at position n - 1.
// The border that LuaJIT finds near a hole, and the order of keys, depend on the array's size.
void make_room(lua_State* L, int index, int n);

// Makes the function at `index` run the prototype of the function at `donor` (made by make_clone of it) from its next
// call on, in place. Returns an empty string, or the reason why that is impossible ("cannot patch in place: ..."); then
// only clones are possible.
std::string redirect(lua_State* L, int index, int donor);
// Restores the original prototype. Returns false if the function was not redirected. Running frames continue unchanged.
// Throws inside a finalizer, where LuaJIT cannot flush traces.
bool restore(lua_State* L, int index);
bool redirected(lua_State* L, int index);
// Returns whether the function at `index` was ever redirected, is a clone, or is the copy that running frames use.
bool was_patched(lua_State* L, int index);
// For a portal that declines: makes the frame that called it continue after portal `id` of the function's current
// prototype, at the same place. The frame is one of the function at `index`, or of the copy that redirection gave to
// its frames. Returns false and does nothing if that is impossible.
bool move_frame(lua_State* L, int index, int id);
// Returns the version of the Patched from which make_clone loaded the prototype. Returns 0 if that has no version, or
// if make_clone did not load the prototype.
uint64_t version_of(lua_State* L, const mirror::Proto* p);
// If the function at `index` is a copy for running frames, pushes the function that it copies; else pushes the function
// itself.
void push_function_of_frame(lua_State* L, int index);
// Makes a frame below the running C function continue in the current prototype of the function at `index`, after the
// call that it made. `pc` is that call in this prototype. Returns false and does nothing if that is impossible.
bool move_frame(lua_State* L, const mirror::LuaFrame& frame, int index, bc::Pc pc);

}  // namespace lutra
