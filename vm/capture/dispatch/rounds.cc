// In: running frames. Out: the time that the rounds of their loops have taken, and how many are left. A loop's limit
// and step lie in slots that only the loop writes.
#include "vm/capture/dispatch/rounds.h"

#include <algorithm>

#include "vm/bytecode/opcode.h"
#include "vm/mirror/mirror.h"

namespace lutra {
namespace {

struct Counted {
  uint32_t head = 0;
  double left = 0;  // rounds, without the present one
};

Counted counted(lua_State* L, const mirror::LuaFrame& frame, uint32_t head, bc::Ins fori) {
  const mirror::TValue* slots = mirror::thread(L)->stack + frame.frame + 1 + bc::op_a(fori);
  if (!std::all_of(slots, slots + 3, [](mirror::TValue v) { return mirror::is_number(v); })) return {};
  const double left = (mirror::number(slots[1]) - mirror::number(slots[0])) / mirror::number(slots[2]);
  return left >= 0 && left < HUGE_VAL ? Counted{head, std::floor(left)} : Counted();
}

double note(Rounds& known, const Counted& now, double now_ms) {
  constexpr double kStretch = 3;  // rounds
  if (now.head == 0 || now.head != known.head || now.left > known.left) {
    known = {.head = now.head, .left = now.left, .at_ms = now_ms};
    return 0;
  }
  if (const double done = known.left - now.left; done >= kStretch) {
    known.before_ms = known.each_ms, known.each_ms = (now_ms - known.at_ms) / done;
    known.left = now.left, known.at_ms = now_ms;
  }
  // The first rounds take longer, because they meet ops for the first time.
  const double each = std::min(known.before_ms, known.each_ms);
  return known.before_ms < HUGE_VAL ? now.left * each : 0;
}

}  // namespace

void note_rounds(lua_State* L, const mirror::LuaFrame& frame, double now_ms, FrameRounds& known) {
  constexpr int kManyLooks = 64, kManyRounds = 16;
  known.left_ms = 0, known.soon_known = false;
  if (!frame.called) return;
  const mirror::Proto* proto = mirror::proto_of(frame.function);
  const uint32_t* code = proto->bytecode();
  const auto called = uint32_t(frame.called - code);
  Counted outermost, innermost;
  for (uint32_t pc = 1; pc < called; pc++) {
    const bc::Op op = bc::op(code[pc]);
    // Of a loop that LuaJIT has compiled, only the FORI still has its opcode. It jumps behind the loop.
    if ((op != bc::Op::FORI && op != bc::Op::JFORI) || bc::jump_target(pc, code[pc]) <= called) continue;
    innermost = counted(L, frame, pc, code[pc]);
    if (outermost.head == 0) outermost = innermost;
  }
  const double in_all = note(known.outer, outermost, now_ms);
  known.left_ms = std::max(in_all, note(known.inner, innermost, now_ms));
  const Rounds& outer = known.outer;
  known.soon_known = outer.left >= kManyRounds && outer.before_ms == HUGE_VAL && known.soon_known_count++ < kManyLooks;
}

}  // namespace lutra
