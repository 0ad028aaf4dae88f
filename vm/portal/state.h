// What vm/portal keeps for a lua_State: the function that runs portals, ids and their sites, and the registry tables
// that anchor prototypes. Internal to vm/portal.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "vm/host/modes.h"
#include "vm/mirror/mirror.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {

struct PortalState {
  PortalFn run = nullptr;
  bool mirror = false;
  bool closed = false;  // the lua_State is closing

  struct Id {
    std::vector<const uint32_t*> sites;  // where a call of this id may return to
    int refs = 0;                        // prototypes that name it
    bool used = false;
  };
  std::vector<Id> ids{1};
  std::vector<int> free_ids;
  // A record that is dead may still be known when its memory is another one's.
  std::unordered_multiset<const uint32_t*> helper_sites;

  // A prototype that make_clone has loaded.
  struct Record {
    std::vector<Site> sites;
    bool entered_by_portal = false;  // each call begins with one
    uint64_t version = 0;            // see version_of
  };
  std::unordered_map<const mirror::Proto*, Record> records;
  size_t sweep_records_at = 64;
  std::unordered_map<const mirror::Proto*, const mirror::Func*> newborn;  // see run_newborn
  lua_State* main = nullptr;
  const mirror::Tab* threads = nullptr;  // kThreads
  const mirror::Tab* alive = nullptr;    // kAlive
  std::shared_ptr<Modes> modes;          // of the Lua state
};

// The state's tables in the registry, beside those of vm/mirror/prototypes.h.
enum class PortalTable {
  kAlive,    // [prototype that make_clone loaded] = true; weak keys
  kCopies,   // [copy that frames were given] = the function they are frames of; weak keys
  kThreads,  // [coroutine] = true, see threads.cc; weak keys
  kRests,    // [function that runs the rest of a frame] = the frame's own; weak keys
  // [function of a patched prototype] = what it was made of; weak, as that one may reach it by its variables.
  kClones,
  kRooms,    // [n] = the function that make_room calls; weak values
  kMakers,   // [prototype] = the function that makes closures of it, which holds it; weak values
  kLoaded,   // [version of a Patched] = the prototype that make_clone loaded of it; weak values
  kMade,     // [version of a Patched] = the function that make_rest made last of it; weak values
  kSources,  // [function that is a value of kCopies, kRests or kClones] = true; weak keys
  kCount
};

PortalState& portal_state(lua_State* L);  // throws where install_portals has not run
void push_table(lua_State* L, PortalTable table);

void wrap_string_dump(lua_State* L);
void wrap_getinfo(lua_State* L);
void wrap_setfenv(lua_State* L);
// Pushes the user's function that the one at `index` runs frames for; else that one.
void push_function_of(lua_State* L, int index);
void install_number_call(lua_State* L, PortalState* state);
void add_record(lua_State* L, int closure, const Patched& patched);

// Pushes a closure of the prototype, with variables of its own, where can_make_closures. Only with the mirror.
void push_plain_closure(lua_State* L, const mirror::Proto* p);
// Gives the variables of a new closure the hashes that an FNEW of `parent` would give them. Only with the mirror.
void hash_variables(mirror::Func* closure, const mirror::Proto* parent);
// Patched code or a maker has just made the closure.
void adopt_newborn(const PortalState& s, mirror::Func* closure);

// -- threads.cc, only with the mirror

void open_threads(lua_State* L, PortalState& s);
// A portal is called by L.
void add_thread(lua_State* L);
inline void note_thread(lua_State* L, const PortalState& s) {
  if (L == s.main) return;
  if (mirror::raw_get(s.threads, mirror::make_gc(mirror::kThread, L)).u64 == mirror::kNilValue) add_thread(L);
}
// The coroutines that may have frames of a function, the main one among them: all, or of those that call a portal
// first.
std::vector<lua_State*> threads_with_frames(lua_State* L, bool portals_only);

}  // namespace lutra
