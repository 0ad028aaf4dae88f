// Sizes that elements decide (of x[mask], nonzero, masked_select), as numbers of the trace's graph.
#pragma once
#include <optional>

#include "jit/graph/unbacked.h"
#include "vm/capture/trace/breaks.h"
#include "vm/capture/trace/tracker.h"

namespace lutra {

class Trace;

class TraceSizes : public UnbackedSizes {
 public:
  explicit TraceSizes(Trace& trace) : t_(trace) {}
  bool takes() override;
  SymInt size(OpId op, SymInt most) override;

 private:
  Trace& t_;
};

// An element, a tensor of the graph without dims, as such a number of the graph; whole: of integers. None where the
// graph cannot go on with it.
std::optional<Scalar> tell_element(Trace& t, const Tensor& element, bool whole);

// Whether an expression is made of such a size.
bool is_unbacked(const Trace& t, int32_t expr);
// x < y (or_equal: x <= y) of numbers of which one is made of such a size; what is not known stops the trace, but in
// lt.check_is_size, where it is a fact from then on.
bool unbacked_less(Trace& t, bool or_equal, const Scalar& x, const Scalar& y);
bool unbacked_equal(Trace& t, const Scalar& x, const Scalar& y);
// The number as a tensor of the graph.
Tensor unbacked_element(Trace& t, const Scalar& n);

// Ends the trace where the value of an expression of such sizes is needed.
[[noreturn]] void stop_at_size(Trace& t, int32_t expr);
// Ends the trace at an error of an op. Where an answer about such a size, which came after the first `guards`
// questions, may have decided it, the trace is made again with a size of the other answer: what the op needs is
// asserted by the run. If there is none, the break says which fact is missing.
[[noreturn]] void stop_at_error(Trace& t, size_t guards, const BreakAbout& about);

}  // namespace lutra
