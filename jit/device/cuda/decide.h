// Branches and loops of a recorded run as conditional nodes of its graph: the GPU decides, and the host does not wait.
#pragma once
#include "jit/runtime/runner.h"

namespace lutra {

class ConditionalNodes final : public Decider {
 public:
  explicit ConditionalNodes(Device device) : device_(device) {}
  void when(const void* flag, DType dtype, bool holds, const std::function<void()>& body) override;
  void repeat(const void* flag, DType dtype, const std::function<void()>& body) override;
  void copy(void* to, const void* from, size_t bytes) override;

 private:
  const Device device_;
};

}  // namespace lutra
