// Finds the original prototype of a function on the Lua stack, whatever bytecode it runs now: its identity and its
// original code. The code that patches functions (vm/portal) writes the tables.
#pragma once
#include <string>
#include <unordered_set>

#include "vm/bytecode/dump.h"
#include "vm/mirror/mirror.h"

struct lua_State;

namespace lutra {

// Returns the identity of the original prototype of the function at `index`. It is equal for all closures of one
// prototype, patched or not, and for clones. Frames that resume after a graph break have identities of their own.
// Without the mirror, closures that were not cloned from one another may have different identities.
const void* prototype_identity(lua_State* L, int index);
// Returns whether the function at `index` is the rest of a frame after a graph break, whose arguments are the live
// values there.
bool is_resumed(lua_State* L, int index);
// Returns the identities of all live prototypes that have one.
std::unordered_set<const void*> live_prototypes(lua_State* L);
// string.dump of the *original* code of the function at `index`, parsed. Throws for C functions.
bc::Dump dump_function(lua_State* L, int index);
const mirror::Proto* original_proto(lua_State* L, int index);  // only with the mirror

// Raw access to the tables, for prototype_identity without the API. known_identity returns 0 if the prototype has no
// identity yet. Only with the mirror.
struct PrototypeTables {
  const mirror::Tab *anchors = nullptr, *originals = nullptr, *resumed = nullptr, *identities = nullptr;
};
PrototypeTables prototype_tables(lua_State* L);
double known_identity(const PrototypeTables& tables, const mirror::Func* function);

// -- for those who patch

// The state's tables in the registry; weak keys.
enum class PrototypeTable {
  kAnchors,   // [function] = {original prototype, current prototype}
  kOriginal,  // [prototype of a clone] = the prototype it was made from
  kClones,    // [closure] = dump of its original, if there is no mirror
  kResumed,   // [prototype of a frame that resumes after a break] = true
  kIdentity,  // [prototype] = its number, which is never reused
  kChanged,   // [prototype] = true: its calls became tail calls because of a deep stack (vm/loader)
  kCount
};
void push_weak_table(lua_State* L, const char* mode);  // pushes a new table; tables of one mode share a metatable
void open_prototypes(lua_State* L);                    // once for each lua_State, before anything else here
void push_table(lua_State* L, PrototypeTable table);
void push_anchor(lua_State* L, int index);    // kAnchors[function at index] or nil
void push_proto(lua_State* L, int index);     // pushes the prototype that a function runs now, as a Lua value
void push_original(lua_State* L, int index);  // pushes a function that runs the original prototype, only for dumping

int absolute(lua_State* L, int index);
// Pushes the table of a library that is loaded, such as "jit.util". Otherwise pushes nothing and returns false.
bool push_library(lua_State* L, const char* name);
void check_lua_function(lua_State* L, int index);
std::string raw_dump(lua_State* L, int index);             // the dump of the code that the function runs now
mirror::Func* lua_function(lua_State* L, int index);       // only with the mirror
inline mirror::Proto* to_proto(lua_State* L, int index) {  // only with the mirror
  return static_cast<mirror::Proto*>(mirror::object(L, index));
}

}  // namespace lutra
