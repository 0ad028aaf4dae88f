// The structs of LuaJIT 2.1 (GC64) that Lutra reads or writes, and the start-up check that their layout is the one
// written here. The functions read raw fields, or get the same answer through the public API.
//
// Invariants:
// 1. Declarations marked "only if available" are used only if available(L) is true. The check runs once for each
//    lua_State and costs microseconds.
// 2. Raw pointers are valid while the Lua object is reachable; nothing here keeps it alive.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ops/core/cpu.h"

struct lua_State;

namespace lutra::mirror {

struct TValue {
  uint64_t u64;
};

// LuaJIT for AArch64 stores some whole numbers as int32, with the tag kNumX.
constexpr bool kDualNumbers = cpu::kArm64;

// Tags are ~0 - n in the top 17 bits; numbers are every other bit pattern.
enum Tag : uint32_t {
  kNil = ~0u,
  kFalse = ~1u,
  kTrue = ~2u,
  kLightud = ~3u,
  kStr = ~4u,
  kUpval = ~5u,
  kThread = ~6u,
  kProto = ~7u,
  kFunc = ~8u,
  kTrace = ~9u,
  kCdata = ~10u,
  kTab = ~11u,
  kUdata = ~12u,
  kNumX = ~13u,
};
constexpr uint64_t kPayload = (uint64_t{1} << 47) - 1;
inline uint32_t tag(TValue v) { return static_cast<uint32_t>(static_cast<int64_t>(v.u64) >> 47); }
constexpr uint64_t kNilValue = ~uint64_t{0};
inline bool is_number(TValue v) { return kDualNumbers ? tag(v) <= kNumX : tag(v) < kNumX; }
inline double number(TValue v) {
  return kDualNumbers && tag(v) == kNumX ? double(int32_t(v.u64)) : std::bit_cast<double>(v.u64);
}
inline TValue make_number(double d) { return {std::bit_cast<uint64_t>(d)}; }
inline void* gc_pointer(TValue v) { return reinterpret_cast<void*>(v.u64 & kPayload); }
inline TValue make_gc(Tag t, const void* p) { return {reinterpret_cast<uint64_t>(p) | static_cast<uint64_t>(t) << 47}; }

struct Header {
  uint64_t nextgc;
  uint8_t marked, gct;
};

struct Str {
  uint64_t nextgc;
  uint8_t marked, gct, reserved, hashalg;
  uint32_t sid, hash, len;
  const char* data() const { return reinterpret_cast<const char*>(this + 1); }
};

struct Node {
  TValue val, key;
  Node* next;
};

struct Tab {
  uint64_t nextgc;
  uint8_t marked, gct, nomm;
  int8_t colo;
  TValue* array;
  uint64_t gclist;
  Tab* metatable;
  Node* node;
  uint32_t asize, hmask;
  Node* freetop;
};

struct Udata {
  uint64_t nextgc;
  uint8_t marked, gct, udtype, unused1;
  uint32_t unused2;
  Tab* env;
  uint32_t len;
  Tab* metatable;
  uint32_t align1;
  void* payload() const { return const_cast<Udata*>(this) + 1; }
};

struct Upval {
  uint64_t nextgc;
  uint8_t marked, gct, closed, immutable;
  TValue tv;  // the closed value; list links while open
  uint64_t unused;
  TValue* v;
  uint32_t dhash;
};

struct Func {
  uint64_t nextgc;
  uint8_t marked, gct, ffid, nupvalues;
  Tab* env;
  uint64_t gclist;
  const uint32_t* pc;  // offset 32
  Upval* upvalues[1];  // C functions have their lua_CFunction and TValues here
  bool is_lua() const { return ffid == 0; }
};

struct Proto {
  uint64_t nextgc;
  uint8_t marked, gct, numparams, framesize;
  uint32_t sizebc;
  uint32_t unused_gc64;
  uint64_t gclist;
  uint64_t* k;  // KNUM at k[i], KGC at k[-1 - i]
  uint16_t* uv;
  uint32_t sizekgc, sizekn, sizept;
  uint8_t sizeuv, flags;
  uint16_t trace;
  Str* chunkname;
  int32_t firstline, numline;
  const void* lineinfo;
  const uint8_t* uvinfo;
  const uint8_t* varinfo;
  uint32_t* bytecode() const { return reinterpret_cast<uint32_t*>(const_cast<Proto*>(this) + 1); }
};
constexpr uint8_t kProtoNoJit = 8, kProtoClosures = 0xe0;  // the number of closures made, saturating
// Returns the dhash that an FNEW of `parent` stores in an upvalue with the child's descriptor `descriptor` (lj_func.c).
inline uint32_t hash_of_variable(const Proto* parent, uint16_t descriptor) {
  return uint32_t(std::bit_cast<uintptr_t>(parent->bytecode())) ^ uint32_t(descriptor) << 24;
}

struct Thread {
  uint64_t nextgc;
  uint8_t marked, gct, dummy_ffid, status;
  uint64_t glref, gclist;
  TValue *base, *top;
  TValue *maxstack, *stack;
  const Upval* openupval;
  uint64_t env;
  char* cframe;
  uint32_t stacksize;
};

// Returns whether this LuaJIT has the structs above. The result is cached for each main state.
bool available(lua_State* L);
void set_unavailable(lua_State* L);  // makes available() return false, to test the fallbacks

// Raw access; only if available(L).
inline Thread* thread(lua_State* L) { return reinterpret_cast<Thread*>(L); }
inline TValue* base(lua_State* L) { return thread(L)->base; }  // first slot of the running C function
inline TValue* top(lua_State* L) { return thread(L)->top; }
void* object(lua_State* L,
             int index);  // GC object at a stack index above 0 or below the top, nullptr for a plain value
inline Proto* proto_of(const Func* f) { return reinterpret_cast<Proto*>(const_cast<uint32_t*>(f->pc)) - 1; }
const TValue* raw_get(const Tab* t, const Str* key);   // nullptr if absent; never a metamethod
TValue raw_get(const Tab* t, TValue key);              // nil if absent
bool raw_equal(TValue a, TValue b);                    // compares numbers by value, everything else by identity
int64_t length(const Tab* t);                          // like lua_objlen; the same border if there are several
void push_object(lua_State* L, Tag t, const void* p);  // pushes a GC object as a Lua value
// Returns the live coroutines that were allocated after the object `mark`, newest first. `mark` must be alive. If it is
// null, returns all, with the main thread last.
std::vector<lua_State*> threads_since(lua_State* L, const void* mark);

// A frame of a Lua function that called another function. Positions are offsets from the stack's bottom, since the
// stack may move.
struct LuaFrame {
  const Func* function = nullptr;
  ptrdiff_t frame = 0;               // the frame's own link
  ptrdiff_t link = 0;                // where the frame above stores the return address; 0: nowhere
  const uint32_t* called = nullptr;  // the call instruction, if link is known
};
// Stores the innermost Lua frames below the running C function, innermost first. Returns their number.
size_t lua_frames(lua_State* L, LuaFrame* out, size_t most);
// Makes the frame a frame of f that continues at `pc`, after a call that uses the same slots. All traces must have been
// flushed.
void move_frame(lua_State* L, const LuaFrame& frame, const Func* f, const uint32_t* pc);

inline const uint32_t* code_at(uint64_t address) { return reinterpret_cast<const uint32_t*>(address); }

// Returns the caller's frame. A link holds either a distance or the caller's program counter; then the call instruction
// before it gives the distance.
inline TValue* previous_frame(const TValue* frame) {
  const uint64_t link = frame->u64;
  const uint64_t distance = link & 3 ? link >> 3 : 2 + ((code_at(link)[-1] >> 8) & 0xff);
  return const_cast<TValue*>(frame) - distance;
}

// Makes every frame of `from` on these threads' stacks a frame of `to`, which must run the same prototype with the same
// upvalues. Returns whether there were any.
bool replace_frames(const std::vector<lua_State*>& threads, const Func* from, const Func* to);

// Pushes the Lua function that called the running C function, and stores its position in `out`. pc is the call
// instruction, or 0 if only the public API is available or the frame still runs an earlier prototype; then use line.
// Returns false and pushes nothing if the caller is not a Lua function.
struct Caller {
  unsigned pc = 0;
  int line = 0;
};
bool caller_function(lua_State* L, Caller* out);

// Returns the address after the instruction with which Lua code called the running C function, or nullptr if Lua code
// did not call it. Handles trace stitching. Only if available(L).
inline const uint32_t* return_pc(lua_State* L) {
  const TValue* frame = base(L) - 1;
  const uint64_t link = frame->u64;
  if ((link & 3) == 0) return code_at(link);
  return (link & 7) == 2 ? code_at(frame[-2].u64) : nullptr;
}

// Returns the first slot of the frame that called the running C function.
inline TValue* first_slot(lua_State* L) { return previous_frame(base(L) - 1) + 1; }
// Returns the slot of an open upvalue, relative to first_slot(L); slots of outer frames are negative. Returns nullopt
// if the upvalue is closed.
inline std::optional<int> place_of(lua_State* L, const Upval* variable) {
  if (variable->closed || variable->v >= base(L) - 2 || variable->v < thread(L)->stack) return std::nullopt;
  return int(variable->v - first_slot(L));
}
// Returns the slot of the upvalue in the frame that called the running C function, or -1 if it has none there.
inline int slot_of(lua_State* L, const Upval* variable) { return std::max(place_of(L, variable).value_or(-1), -1); }

// Iterate over the thread's open upvalues, those of the innermost frame first; null after the last.
inline const Upval* open_variables(lua_State* L) { return thread(L)->openupval; }
inline const Upval* next_open(const Upval* v) { return static_cast<const Upval*>(gc_pointer({v->nextgc})); }

// Closes the open upvalues above `place`, an offset from the stack's bottom, as UCLO does.
void close_variables(lua_State* L, ptrdiff_t place);

// Makes the running C function return its top n values to the frame whose link is at offset `frame` from the stack's
// bottom, as if that frame, a frame of f, had called it by the call before `pc`. The frames between are dropped: none
// may be a C function's or have open upvalues (close_variables). The stack must not be used until the function returns
// n. There must be room for a frame of f.
void return_to(lua_State* L, ptrdiff_t frame, const Func* f, const uint32_t* pc, int n);

// Makes the frame that called the running C function a frame of f that continues at `pc`. The call before pc must use
// the same slot. If a trace made the call, all traces must have been flushed since.
void move_caller(lua_State* L, const Func* f, const uint32_t* pc);
inline bool called_from_trace(lua_State* L) { return (base(L)[-1].u64 & 3) != 0; }

}  // namespace lutra::mirror
