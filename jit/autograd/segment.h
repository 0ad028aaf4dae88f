// The last stage before the compiler. In: a traced graph. Out: code that runs as one segment of the program. A graph
// that nobody differentiates outside is compiled as it is. Otherwise it is cut into a forward and its backwards.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "jit/compile.h"
#include "ops/grad/tape.h"

namespace lutra {

// The bytes that runs keep for backwards outside, for the sizes at hand.
struct KeptBytes {
  double all = 0;         // of the values that backwards read
  double saved = 0;       // of the values that are kept
  double recomputed = 0;  // of the values that are recomputed
};

// A segment is made in two steps. make_segment reads traced values and the tape. ready() reads graphs only, so another
// thread may call it. A compiled segment may run on several threads at once.
class Segment {
 public:
  virtual ~Segment() = default;
  // Finds or compiles the code. Call it once, before the functions below. Throws as compile_graph does.
  virtual void ready() = 0;
  // The text of the traced graph.
  virtual const std::string& text() const = 0;
  // Runs as Executable::run does. Results with history carry a node of the tape. Storage versions count writes as
  // eager's do. Donors are used if the device accepts them.
  virtual std::vector<Value> run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                                 const std::vector<Donor>& donors, std::vector<InputView>* views = nullptr) = 0;
  virtual const Compiled& forward() const = 0;
  // Waits at most this long for what the background compiles for the segment, except ready(). Returns false if
  // something is not finished.
  virtual bool wait(std::chrono::milliseconds) { return true; }
  virtual KeptBytes kept_bytes() const { return {}; }
  // Returns the plain run to which run() is equal, once the code is ready; null if run() does more.
  virtual const PlainRun* plain() const { return nullptr; }
};

// sources: for each input of the graph, the edge that its gradient goes to; without a node if it takes no gradient.
// differentiable: some result has a history, and the program may ask for its gradients outside.
std::shared_ptr<Segment> make_segment(std::unique_ptr<Graph> traced, const std::vector<Edge>& sources,
                                      bool differentiable, const CompileOptions& options);
// Like make_segment, then calls ready().
std::shared_ptr<Segment> compile_segment(std::unique_ptr<Graph> traced, const std::vector<Edge>& sources,
                                         bool differentiable, const CompileOptions& options);

}  // namespace lutra
