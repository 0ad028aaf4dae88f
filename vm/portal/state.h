// The data of vm/portal for a lua_State: the function that runs portals, ids and their sites, and the registry tables
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
    std::vector<const uint32_t*> sites;  // possible return addresses of a call of this id
    int refs = 0;                        // number of prototypes that call it
    bool used = false;
  };
  std::vector<Id> ids{1};
  std::vector<int> free_ids;
  // A multiset, since the record of a collected prototype may still exist when another prototype uses its memory.
  std::unordered_multiset<const uint32_t*> helper_sites;

  // A prototype that make_clone has loaded.
  struct Record {
    std::vector<Site> sites;
    bool entered_by_portal = false;  // each call begins with a portal call
    uint64_t version = 0;            // see version_of
  };
  std::unordered_map<const mirror::Proto*, Record> records;
  size_t sweep_records_at = 64;
  std::unordered_map<const mirror::Proto*, const mirror::Func*> newborn;  // see run_newborn
  lua_State* main = nullptr;
  const mirror::Tab* threads = nullptr;  // kThreads
  const mirror::Tab* alive = nullptr;    // kAlive
  std::shared_ptr<Modes> modes;          // modes of the Lua state
};

// The state's tables in the registry, in addition to those of vm/mirror/prototypes.h.
enum class PortalTable {
  kAlive,    // [prototype that make_clone loaded] = true; weak keys
  kCopies,   // [copy for running frames] = the function whose frames they were; weak keys
  kThreads,  // [coroutine] = true, see threads.cc; weak keys
  kRests,    // [function that runs the rest of a frame] = the frame's own function; weak keys
  // [function of a patched prototype] = the function it was made from; all weak, since that one may refer to it by its
  // upvalues.
  kClones,
  kRooms,    // [n] = the function that make_room calls; weak values
  kMakers,   // [prototype] = the function that makes closures of it and keeps it alive; weak values
  kLoaded,   // [version of a Patched] = the prototype that make_clone loaded from it; weak values
  kMade,     // [version of a Patched] = the last function that make_rest made from it; weak values
  kSources,  // [function that is a value of kCopies, kRests or kClones] = true; weak keys
  kCount
};

PortalState& portal_state(lua_State* L);  // throws if install_portals has not run
void push_table(lua_State* L, PortalTable table);

void wrap_string_dump(lua_State* L);
void wrap_getinfo(lua_State* L);
void wrap_setfenv(lua_State* L);
// Pushes the user's function for which the one at `index` runs frames; else the function at `index`.
void push_function_of(lua_State* L, int index);
void install_number_call(lua_State* L, PortalState* state);
void add_record(lua_State* L, int closure, const Patched& patched);

// Pushes a closure of the prototype, with upvalues of its own. Only if can_make_closures, and with the mirror.
void push_plain_closure(lua_State* L, const mirror::Proto* p);
// Gives the upvalues of a new closure the hashes that an FNEW of `parent` would give them. Only with the mirror.
void hash_variables(mirror::Func* closure, const mirror::Proto* parent);
// Makes a closure that patched code or a maker has just made run the code of its prototype's example, if there is one.
void adopt_newborn(const PortalState& s, mirror::Func* closure);

// -- threads.cc, only with the mirror

void open_threads(lua_State* L, PortalState& s);
// Records that the coroutine L calls a portal.
void add_thread(lua_State* L);
inline void note_thread(lua_State* L, const PortalState& s) {
  if (L == s.main) return;
  if (mirror::raw_get(s.threads, mirror::make_gc(mirror::kThread, L)).u64 == mirror::kNilValue) add_thread(L);
}
// Returns the coroutines that may have frames of a function, including the main one. portals_only: for a function whose
// calls begin with a portal call.
std::vector<lua_State*> threads_with_frames(lua_State* L, bool portals_only);

}  // namespace lutra
