// The frames above one that calls a portal: what a segment has to know of them to go on in them when that one returns,
// and to leave them.
//
// Invariants:
// 1. Only frames of compiled code called by Lua code, the outermost that of the function whose callees were rebuilt.
// 2. Open variables of these frames are slots that segments know. Those of a frame that is left are closed.
#pragma once
#include "vm/capture/dispatch/compiled_proto.h"
#include "vm/capture/segment/capture.h"

struct lua_State;

namespace lutra {

struct Caller {
  std::shared_ptr<CompiledProto> compiled;
  ptrdiff_t frame = 0;                   // its link, from the stack's bottom
  std::shared_ptr<const CallSite> site;  // of the frame below
  bc::Pc point = 0;                      // whose exits it can be left by; 0: by its own return only
  ptrdiff_t called = 0;                  // where what it has called begins, likewise
  int base = 0;                          // place of its first slot (OpenFrame)
  int first = 0;                         // the place of its function among the portal's arguments; the slots follow
  ptrdiff_t vararg = 0;                  // the first one, from the stack's bottom; they follow the slots
  int varargs = 0;
  std::vector<Passage> between{};  // it and the frame below
};

// Whether segments that begin at the point may go on in frames above.
bool may_cross(lua_State* L, const CompiledProto& compiled, const ProtoPoint& point, const PortalPlace& portal);
// Innermost first, at most so many.
std::vector<Caller> find_callers(CaptureState& state, lua_State* L, const CompiledProto& compiled,
                                 const ProtoPoint& point);
// Pushes their functions and slots; false where there is no room.
bool push_callers(lua_State* L, std::vector<Caller>& callers);
std::vector<CallerPlace> places_of(const std::vector<Caller>& callers);
// What the point is under these callers; null where it has come under too many others.
std::shared_ptr<ProtoPoint> point_under(ProtoPoint& point, const std::vector<Caller>& callers);

// Where a portal gives its results to a frame above.
struct Landing {
  int function = 0;  // stack index of what that frame is one of from then on
  const uint32_t* pc = nullptr;
};
// False where the frame has no bytecode with that exit.
bool find_landing(CaptureState& state, lua_State* L, const Caller& caller, const Entry& entry, Landing* landing);
// Gives the caller the top n values, as its portal; nothing may be done with the stack behind that.
void land(lua_State* L, const Caller& caller, const Landing& landing, int n);

}  // namespace lutra
