// Runs a plan of a few small kernels without an arena on the CPU. What it reads is contiguous, and its working memory
// is on the stack: such a run takes less time than its cache misses would.
#pragma once
#include <memory>

#include "jit/runtime/flat_plan.h"
#include "ops/core/dense.h"
#include "ops/core/small_vec.h"

namespace lutra {

struct Code;

class PlainRun : public Dense {
 public:
  // Returns null if the plan is not of this kind.
  static std::unique_ptr<PlainRun> of(const FlatPlan& flat);
  // views: of the inputs; if it is null, or a view has no data, the view is made from the input. Returns false, and
  // does nothing, if the loops are large, launches are being watched or inputs are missing. Then Runner::run makes the
  // run.
  bool run(const std::vector<Tensor>& inputs, const InputView* views, const double* scalars,
           std::vector<Value>& results) const;

 private:
  // Indices of values and operands are in `places_`, from `first` on.
  struct Output {
    DType dtype;
    int32_t rank, elements, offset, first;  // sizes, then strides
  };
  struct Step {
    const Code* code;
    const LaunchStep* launch;
    int32_t extent, work, words, first;
    bool random;
  };
  // The meaning of a block's word: not negative: the index of a value; otherwise an Operand, see word_of.
  enum Operand : int32_t { kInput, kOutput, kConstant };
  static int32_t word_of(Operand kind, int32_t i) { return ~(i << 2 | kind); }

  explicit PlainRun(const FlatPlan& flat)
      : flat_(&flat),
        program_(&flat.program),
        device_(flat.plan.device),
        rng_calls_(uint32_t(flat.plan.rng_calls)),
        input_count_(size_t(flat.input_count)),
        reckons_(flat.program.has_steps()) {}
  union Views;
  void note_memory() const;
  bool add_outputs();
  bool add_steps();
  int32_t output_at(int32_t buffer) const;  // -1: none
  bool is_small(const HostValue* values) const;
  void launch(const Step& step, const HostValue* values, const InputView* views, void* const* outputs) const;

  static constexpr size_t kMaxValues = 48, kMaxWords = 48, kMaxInputs = 16, kMaxOutputs = 4, kMaxSteps = 4;
  const FlatPlan* flat_;
  const HostProgram* program_;
  const Device device_;
  const uint32_t rng_calls_;
  const size_t input_count_;
  const bool reckons_;  // the values are not all constants
  SmallVec<Step, 1> steps_;
  SmallVec<Output, 1> outputs_;
  SmallVec<HostValue, 8> start_;
  SmallVec<int32_t, 16> places_;
};

}  // namespace lutra
