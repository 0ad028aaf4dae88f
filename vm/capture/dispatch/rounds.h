// How long the numeric for loops on the Lua stack will still run.
#pragma once
#include <cmath>
#include <cstdint>

struct lua_State;

namespace lutra {

namespace mirror {
struct LuaFrame;
}

// A `for i = a, b` loop of a frame: how many rounds it had left at some time, and what one takes.
struct Rounds {
  uint32_t head = 0;  // pc of the loop's FORI; 0: none
  double left = 0, at_ms = 0;
  double before_ms = HUGE_VAL, each_ms = HUGE_VAL;  // a round's time in the two latest measurements; infinite: none yet
};

// The outermost and the innermost numeric loop around the call that a frame is in.
struct FrameRounds {
  Rounds outer{}, inner{};
  double left_ms = 0;  // time that the loops have left, estimated from past rounds; 0: not known (yet)
  bool soon_known = false;
  int soon_known_count = 0;  // how often soon_known was set
};

// Records the rounds that the frame's loops have left at `now_ms`.
void note_rounds(lua_State* L, const mirror::LuaFrame& frame, double now_ms, FrameRounds& known);

}  // namespace lutra
