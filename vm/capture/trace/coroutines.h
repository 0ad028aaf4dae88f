// Coroutines that the trace makes: a body's frames in, which the trace goes on in whenever it resumes them.
//
// Invariants:
// 1. A coroutine of the trace is nothing outside of it. Where it lives on at the segment's end, or a break is inside of
//    it, the segment ends before it is made.
// 2. What stands between the body and a yield are calls of Lua's, iterators and protected calls. What a yield cannot
//    come through, or what has to know of it, ends the segment likewise.
#pragma once
#include <deque>
#include <unordered_map>
#include <vector>

#include "vm/capture/trace/trace.h"

namespace lutra {

struct Coroutine {
  enum class Status : uint8_t { kSuspended, kRunning, kNormal, kDead };

  Var *body = nullptr, *thread = nullptr;
  Status status = Status::kSuspended;
  std::vector<Frame*> frames;      // while it is suspended, outermost first; none: it has not begun
  std::vector<ModeCall> protects;  // calls of pcall(coroutine.yield) that it is suspended in
  size_t first = 0;                // while it runs, the place of its first frame in the trace's
  uint64_t step = 0;               // that made it
  BreakReason why;                 // of a segment that ends before that
};

struct Coroutines {
  std::deque<Coroutine> all;  // in the order they were made
  std::unordered_map<const void*, Coroutine*> of_object;
  std::vector<Coroutine*> running;  // the innermost last
};

// The coroutine that a thread or a function of coroutine.wrap is; null where it is none of the trace's.
const Coroutine* coroutine_of(const Trace& t, const Var* v);
// Before which one's making the segment ends that this one outlives: with it go older ones, which may live, too.
const Coroutine& first_to_leave(const Trace& t, const Coroutine& one);

Vars run_coroutine_create(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_wrap(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_resume(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_yield(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_status(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_running(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_isyieldable(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
