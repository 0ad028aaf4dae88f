// The frames above the frame that calls a portal. A segment needs their slots to continue in them after that frame
// returns, and to leave them.
//
// Invariants:
// 1. All are frames of compiled code that Lua code called. The outermost is a frame of the function whose callees were
//    rebuilt.
// 2. Open upvalues of these frames are slots that segments know. The open upvalues of a frame that is left are closed.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"
#include "vm/capture/segment/capture.h"

struct lua_State;

namespace lutra {

struct Caller {
  std::shared_ptr<CompiledProto> compiled;
  ptrdiff_t frame = 0;                   // stack index of its frame link, counted from the stack's bottom
  std::shared_ptr<const CallSite> site;  // the call of the frame below
  bc::Pc point = 0;                      // the point whose exits leave it; 0: only its own return does
  ptrdiff_t called = 0;                  // where the frame that it called begins, counted likewise
  int base = 0;                          // index of its first slot (OpenFrame)
  int first = 0;                         // index of its function among the portal's arguments; its slots follow
  ptrdiff_t vararg = 0;                  // stack index of its first vararg, counted likewise; they follow the slots
  int varargs = 0;
  std::vector<Passage> between{};  // C functions between it and the frame below
};

// Returns whether segments that begin at the point may continue in frames above.
bool may_cross(lua_State* L, const CompiledProto& compiled, const ProtoPoint& point, const PortalPlace& portal);
// Returns the frames above, innermost first, at most ProtoPoint::most_callers.
std::vector<Caller> find_callers(CaptureState& state, lua_State* L, const CompiledProto& compiled,
                                 const ProtoPoint& point);
// Pushes the callers' functions, slots and varargs. Returns false if the stack has no room.
bool push_callers(lua_State* L, std::vector<Caller>& callers);
std::vector<CallerPlace> places_of(const std::vector<Caller>& callers);
// Returns the point that stands for `point` under these callers. Returns null if it already has too many paths of
// callers.
std::shared_ptr<ProtoPoint> point_under(ProtoPoint& point, const std::vector<Caller>& callers);

// The place in a frame above to which a portal returns its results.
struct Landing {
  int function = 0;  // stack index of the function that the frame runs from then on
  const uint32_t* pc = nullptr;
};
// Finds the place where the entry's exit leaves the caller. Returns false if the caller's bytecode does not have that
// exit.
bool find_landing(CaptureState& state, lua_State* L, const Caller& caller, const Entry& entry, Landing* landing);
// Returns the top n values to the caller, as if its own portal returned them. The stack must not be used afterwards.
void land(lua_State* L, const Caller& caller, const Landing& landing, int n);

}  // namespace lutra
