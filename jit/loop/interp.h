// Interprets a kernel on a block of the ABI, and writes the block's memory. Exact: every instruction rounds to its
// type, and reductions run in the order of loop.h, so compiled code must agree bit for bit. Wide: floats are float64
// throughout (stores round), to judge tolerances; integers stay exact.
#pragma once
#include <memory>

#include "jit/loop/loop.h"

namespace lutra::loop {

// A kernel decoded for interpretation.
class DecodedKernel {
 public:
  explicit DecodedKernel(const Kernel& k);
  ~DecodedKernel();
  // May run in several threads at once. look_after: iterations between two looks whether it shall stop; 0: it never
  // looks.
  void run(void* block, bool wide, int look_after = 0) const;

  struct DecodedInst;
  struct DecodedLoop;

 private:
  void decode(const std::vector<Stmt>& body);
  std::vector<DecodedInst> steps_;
  std::vector<DecodedLoop> loops_;
  size_t params_, ints_, values_, loop_ids_;
  std::vector<DType> types_;
};

void interpret(const Kernel& k, void* block, bool wide);

}  // namespace lutra::loop
