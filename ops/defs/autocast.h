// Autocast: an op and its arguments in, the arguments in the types that the lists of autocast.def choose out.
// Invariants:
// 1. The casts are calls of to_dtype, made before the op: tape, modes and compiler see ordinary ops.
// 2. What an op with a row is made of runs without autocast; so does backward, in the types that forward chose.
// 3. The elements of the cast of a float32 leaf that requires grad are computed once in a region, and again only when
//    the leaf was written to. Each use has its own node on the tape: gradients meet in float32, whether uses share a
//    cast or a graph break lies between them.
#pragma once
#include <array>

#include "ops/defs/op.h"

namespace lutra {

enum class AutocastPolicy : uint8_t { kNone, kLower, kFloat32, kResult, kPromote, kPad, kNumerator, kApart, kBanned };

// By device type: 0 the CPU, 1 CUDA.
struct AutocastMode {
  std::array<bool, 2> enabled{};
  std::array<DType, 2> dtype{DType::kBFloat16, DType::kFloat16};
  bool cache = true;
  bool any() const { return enabled[0] || enabled[1]; }
  bool operator==(const AutocastMode&) const = default;
};
int pack(const AutocastMode& mode);              // one number a mode
std::string describe(const AutocastMode& mode);  // "off", "cpu: bfloat16"

const AutocastMode& autocast_mode();               // of this thread
void set_autocast_mode(const AutocastMode& mode);  // drops the casts that were kept where none is enabled any more
void clear_autocast_cache();

// How often this thread has asked for the mode: what a trace has asked for is guarded.
uint64_t autocast_reads();
void note_autocast_read();

// Whether call_op has to ask at all.
extern constinit thread_local bool autocast_watched;
// Casts complete arguments. True: what the op is made of is to run under AutocastOff.
bool autocast(const OpInfo& op, Args& args, Device device);
// The same for what is no op: floats among args, by the policy of the device.
void autocast_by(AutocastPolicy cpu, AutocastPolicy cuda, Args& args, Device device);

// No autocast in a scope of this thread.
struct AutocastOff {
  AutocastOff() : saved(autocast_watched) { autocast_watched = false; }
  ~AutocastOff() { autocast_watched = saved; }
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
