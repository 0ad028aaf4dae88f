// LuaJIT's global_State, whose fields minor collections read and write, and the check that its layout is the one
// written here. Use it only if available(L) and is_global_known(L).
#pragma once
#include <bit>
#include <cstdint>

#include "vm/mirror/mirror.h"

namespace lutra::mirror {

constexpr uint8_t kWhites = 3, kBlack = 4, kFinalized = 8;  // Header::marked
enum CollectorState : uint8_t { kPause, kPropagate, kAtomic, kSweepStrings, kSweep, kFinalize };
constexpr uint64_t kStopped = uint64_t(1) << 47;  // Global::threshold while the collector is stopped
constexpr uint8_t type_of(Tag t) { return uint8_t(~uint32_t(t)); }

struct Global {
  uint64_t allocator[2];
  uint64_t total, threshold;
  uint8_t currentwhite, state, unused[2];
  uint32_t sweepstr;
  uint64_t root, sweep;
  Header *gray, *grayagain, *weak, *mmudata;
  uint64_t debt, estimate;
  uint32_t stepmul, pause;
  uint64_t lightudseg;
  Str empty;
  uint8_t empty_zero, hookmask, dispatchmode, vmevmask;
  uint64_t strings[4];
  int32_t vmstate;
  Thread* mainthread;
  uint64_t buffer[4];
  TValue temporary[2];
  Node nil;
  TValue registry;
  Upval uvhead;  // head of the ring of open upvalues
  int32_t hookcount[2];
  uint64_t hooks[3];
  uint32_t bytecode[2];
  Thread* current;
  uint64_t jit_base, ctype_state, random[4];
  Header* roots[38];  // metamethod names, metatables of basic types, io's two files

  const Str* mode_name() const { return std::bit_cast<const Str*>(roots[3]); }
  bool is_recording() const { return dispatchmode & 0x20; }
  bool in_finalizer() const { return hookmask & 0x40; }
};
static_assert(sizeof(Global) == 424 + 38 * 8 && alignof(Global) == 8);

inline Global& global(lua_State* L) { return *std::bit_cast<Global*>(thread(L)->glref); }
// Returns the next object of the lists gray, grayagain, weak.
inline Header* list_link(const Header* o) { return std::bit_cast<Header*>(std::bit_cast<const Tab*>(o)->gclist); }

bool is_global_known(lua_State* L);

}  // namespace lutra::mirror
