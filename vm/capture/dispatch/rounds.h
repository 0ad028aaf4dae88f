// How long the loops that count on the Lua stack will run on.
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
  uint32_t head = 0;  // of the loop; 0: none
  double left = 0, at_ms = 0;
  double before_ms = HUGE_VAL, each_ms = HUGE_VAL;  // of the two latest stretches; infinite: not known yet
};

// Of a frame: the outermost loop around its call, and the innermost one.
struct FrameRounds {
  Rounds outer{}, inner{};
  double left_ms = 0;  // what they have still to do, by what rounds have taken; 0: not known, or not yet
  bool soon_known = false;
  int looks = 0;  // that found it to be so
};

// Notes where the frame's loops are at `now_ms`.
void note_rounds(lua_State* L, const mirror::LuaFrame& frame, double now_ms, FrameRounds& known);

}  // namespace lutra
