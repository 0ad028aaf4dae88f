// Autocast: an op and its arguments in, the arguments in the types that its row chooses out.
// Invariants:
// 1. The casts are calls of to_dtype, made before the op: tape, modes and compiler see ordinary ops.
// 2. What an op with a row is made of runs without autocast; so does backward, in the types that forward chose.
// 3. The elements of the cast of a float32 leaf that requires grad are computed once in a region, and again only when
//    the leaf was written to. Each use has its own node on the tape: gradients meet in float32, whether uses share a
//    cast or a graph break lies between them.
#pragma once
#include "ops/defs/modes.h"

namespace lutra {

int pack(const AutocastMode& mode);  // one number a mode
AutocastMode unpack(int packed);
std::string describe(const AutocastMode& mode);  // "off", "cpu: bfloat16"

const AutocastMode& autocast_mode();
void set_autocast_mode(const AutocastMode& mode);  // drops the casts that were kept where none is enabled any more
void clear_autocast_cache();

// How often the mode has been asked for: what a trace has asked for is guarded.
uint64_t autocast_reads();
void note_autocast_read();

// Casts complete arguments. True: what the op is made of is to run under AutocastOff.
bool autocast(const OpInfo& op, Args& args, Device device);

// No autocast in a scope.
struct AutocastOff {
  AutocastOff() : saved(modes().autocast.watched) { modes().autocast.watched = false; }
  ~AutocastOff() { modes().autocast.watched = saved; }
  AutocastOff(const AutocastOff&) = delete;
  bool saved;
};

// The same where a user's code may run, as hooks do in backward: it finds autocast disabled, and regions of its own end
// in that again.
class AutocastDisabled {
 public:
  AutocastDisabled();
  ~AutocastDisabled();
  AutocastDisabled(const AutocastDisabled&) = delete;

 private:
  const AutocastMode mode_;
  const bool watched_;
};

// For a trace: the mode is put back at the end, and reads are counted even while nothing is enabled.
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
