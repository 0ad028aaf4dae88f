// Coroutines that the trace makes. The trace interprets the frames of a body, and continues in them whenever it resumes
// the coroutine.
//
// Invariants:
// 1. A coroutine of the trace does not exist outside of it. If it is alive at the segment's end, or a break is inside
//    of it, the segment ends before the coroutine is created.
// 2. Only Lua calls, iterators and protected calls may be between the body and a yield. Other calls, which a yield
//    cannot cross or which have to know of it, end the segment in the same way.
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
  std::vector<Frame*> frames;      // while it is suspended, outermost first; empty if it has not started
  std::vector<ModeCall> protects;  // calls of pcall(coroutine.yield) that it is suspended in
  size_t first = 0;                // while it runs, the index of its first frame among the trace's
  size_t came_back = 0;            // the number of its frames that were suspended in a yield
  uint64_t step = 0;               // the step that created it
  BreakReason why;                 // the break of a segment that ends before that step
};

struct Coroutines {
  std::deque<Coroutine> all;  // in the order they were made
  std::unordered_map<const void*, Coroutine*> of_object;
  std::vector<Coroutine*> running;  // the innermost last
};

// Returns the coroutine of a thread or of a function of coroutine.wrap; null if the trace did not create it.
const Coroutine* coroutine_of(const Trace& t, const Var* v);
// Returns the coroutine before whose creation the segment must end if `one` outlives it: the oldest that is not dead,
// or `one`.
const Coroutine& first_to_leave(const Trace& t, const Coroutine& one);

Vars run_coroutine_create(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_wrap(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_resume(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_yield(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_status(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_running(Trace& t, Var* self, const Vars& args);
Vars run_coroutine_isyieldable(Trace& t, Var* self, const Vars& args);

}  // namespace lutra
