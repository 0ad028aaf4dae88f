// The last stage before the compiler: a traced graph in; code that runs as one segment of the program out. Where
// nothing is differentiated outside of it, that is the graph as it is. Else it is cut into a forward and its backwards.
#pragma once
#include <memory>
#include <vector>

#include "jit/compile.h"
#include "ops/grad/tape.h"

namespace lutra {

// What runs keep for backwards outside, by the sizes at hand.
struct KeptBytes {
  double all = 0;         // of the values that backwards read
  double saved = 0;       // of what is kept
  double recomputed = 0;  // of the values that are computed again
};

// A compiled segment. It may run on several threads at once.
class Segment {
 public:
  virtual ~Segment() = default;
  // As Executable::run; results with history carry a node of the tape, and versions of storages count writes as eager's
  // do. Donors serve where the device takes them.
  virtual std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                                 const std::vector<Donor>& donors) = 0;
  virtual const Compiled& forward() const = 0;
  virtual KeptBytes kept_bytes() const { return {}; }
};

// sources: by input of the graph, where its gradient goes to; no node for those that take none. differentiable: some
// result has a history whose gradients somebody outside may ask for.
std::shared_ptr<Segment> compile_segment(std::unique_ptr<Graph> traced, const std::vector<Edge>& sources,
                                         bool differentiable, const CompileOptions& options);

}  // namespace lutra
