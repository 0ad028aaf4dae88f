// Unbacked sizes, which depend on elements (of x[mask], nonzero, masked_select), as numbers of the trace's graph.
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
  bool takes(bool first) override;
  SymInt size(OpId op, SymInt most) override;

 private:
  Trace& t_;
};

// Turns an element, a 0-dim tensor of the graph, into such a number; whole: its dtype is an integer. Returns nullopt if
// the graph cannot continue with it.
std::optional<Scalar> tell_element(Trace& t, const Tensor& element, bool whole);

// Returns whether an expression contains such a size.
bool is_unbacked(const Trace& t, int32_t expr);
// Compares x < y (or_equal: x <= y), where one number contains such a size. An unknown result stops the trace, except
// in lt.check_is_size, which makes it a known fact.
bool unbacked_less(Trace& t, bool or_equal, const Scalar& x, const Scalar& y);
bool unbacked_equal(Trace& t, const Scalar& x, const Scalar& y);
// Returns the number as a tensor of the graph.
Tensor unbacked_element(Trace& t, const Scalar& n);

// Ends the trace because the value of an expression of such sizes is needed.
[[noreturn]] void stop_at_size(Trace& t, int32_t expr);
// Ends the trace at an error of an op. If a comparison of such a size after the first `guards` guards may have caused
// the error, the trace is repeated with a size for which the comparison has the other result; the run then asserts what
// the op needs. If no such size is found, the break names the missing fact.
[[noreturn]] void stop_at_error(Trace& t, size_t guards, const BreakAbout& about);

}  // namespace lutra
