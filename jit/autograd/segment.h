// The last stage before the compiler: a traced graph in; code that runs as one segment of the program out. Where
// nothing is differentiated outside of it, that is the graph as it is. Else it is cut into a forward and its backwards.
#pragma once
#include <chrono>
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

// A segment, made in two steps: what looks at traced values and at the tape, then ready(), which looks at graphs only
// and may be called on another thread. Compiled, it may run on several threads at once.
class Segment {
 public:
  virtual ~Segment() = default;
  // Once, before all that is below: the code is found or made. Throws as compile_graph does.
  virtual void ready() = 0;
  // The traced graph's.
  virtual const std::string& text() const = 0;
  // As Executable::run; results with history carry a node of the tape, and versions of storages count writes as eager's
  // do. Donors serve where the device takes them.
  virtual std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                                 const std::vector<Donor>& donors, std::vector<InputView>* views = nullptr) = 0;
  virtual const Compiled& forward() const = 0;
  // Waits for so long at most for what the background compiles of it, ready() apart. False: not all is there.
  virtual bool wait(std::chrono::milliseconds) { return true; }
  virtual KeptBytes kept_bytes() const { return {}; }
};

// sources: by input of the graph, where its gradient goes to; no node for those that take none. differentiable: some
// result has a history whose gradients somebody outside may ask for.
std::shared_ptr<Segment> make_segment(std::unique_ptr<Graph> traced, const std::vector<Edge>& sources,
                                      bool differentiable, const CompileOptions& options);
// The same, found or compiled.
std::shared_ptr<Segment> compile_segment(std::unique_ptr<Graph> traced, const std::vector<Edge>& sources,
                                         bool differentiable, const CompileOptions& options);

}  // namespace lutra
