// Autocast: casts the arguments of an op to the types that its row chooses.
// Invariants:
// 1. The casts are calls of to_dtype before the op: tape, modes and compiler see ordinary ops.
// 2. The parts of an op that has a policy run without autocast. So does backward, in the types that forward chose.
// 3. The elements of the cast of a float32 leaf that requires grad are computed once in a region, and again only after
//    a write to the leaf. Each use has its own node on the tape. So gradients meet in float32, whether uses share a
//    cast or a graph break lies between them.
#pragma once
#include "ops/defs/modes.h"

namespace lutra {

int pack(const AutocastMode& mode);  // packs a mode into one number
AutocastMode unpack(int packed);
std::string describe(const AutocastMode& mode);  // "off", "cpu: bfloat16"

const AutocastMode& autocast_mode();
void set_autocast_mode(const AutocastMode& mode);  // drops the kept casts if no device type is enabled any more
void clear_autocast_cache();

// How often the mode has been asked for. A trace that asked for it must guard it.
uint64_t autocast_reads();
void note_autocast_read();

// Casts complete arguments. Returns true if the op's parts must run under AutocastOff.
bool autocast(const OpInfo& op, Args& args, Device device);

// Switches autocast off for a scope.
struct AutocastOff {
  AutocastOff() : saved(modes().autocast.watched) { modes().autocast.watched = false; }
  ~AutocastOff() { modes().autocast.watched = saved; }
  AutocastOff(const AutocastOff&) = delete;
  bool saved;
};

// Does the same for a scope in which user code may run, as hooks do in backward. That code reads autocast as disabled,
// and leaving a region of its own restores that state.
class AutocastDisabled {
 public:
  AutocastDisabled();
  ~AutocastDisabled();
  AutocastDisabled(const AutocastDisabled&) = delete;

 private:
  const AutocastMode mode_;
  const bool watched_;
};

// A scope for a trace. It restores the mode at its end, and counts reads even while autocast is disabled everywhere.
class AutocastTrace {
 public:
  AutocastTrace();
  ~AutocastTrace();
  AutocastTrace(const AutocastTrace&) = delete;
  const AutocastMode initial;
  bool read() const { return autocast_reads() != reads_; }

 private:
  bool counting_, watched_;
  uint64_t reads_;
};

}  // namespace lutra
