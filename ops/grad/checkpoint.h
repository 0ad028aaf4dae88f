// A call whose nodes save nothing (lt.checkpoint): a function that repeats it in, at the first need what would have
// been saved out.
//
// Invariants:
// 1. The nodes are those of the first call. The repetition only gives them their tensors, in the order in which they
//    were saved; so gradients are eager's bit for bit, hooks and double backward included.
// 2. The call is repeated with the random state and the modes of then, and on the elements of then: memory from outside
//    that it wrote has its former content meanwhile, and its present one afterwards.
// 3. Memory from outside that the call read must not have been written since: an error, never a wrong gradient.
#pragma once
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ops/defs/modes.h"
#include "ops/grad/saved_tensor.h"

namespace lutra {

class Checkpoint final : public SavedLater {
 public:
  // call: what `again` calls, to those who know it.
  Checkpoint(std::function<void()> again, std::shared_ptr<HookKeeper> call);
  // Between them the call is made, once.
  void begin();
  void end();

  void takes(const Tensor& t) override;
  void made(const Tensor& t) override;
  void writes(const Tensor& t) override;
  bool keeps(const Tensor& t, uint32_t saver, size_t& number) override;
  Tensor give(size_t number, const char* op) override;
  void drop(size_t number) override;
  bool is_ready(size_t) const override { return !given_.empty(); }

  struct Kept {
    uint32_t version;
    Sizes sizes;
    DType dtype;
    bool requires_grad;
    uint32_t saver;
  };
  // For those who repeat it otherwise, in the modes of then: null where nobody may ask any more.
  const std::shared_ptr<HookKeeper>& call() const { return call_; }
  const std::vector<Kept>& kept() const { return kept_; }
  const Generator& generator() const { return generator_; }
  const AutocastMode& autocast() const { return autocast_; }
  bool draws() const { return draws_; }
  size_t live() const { return live_; }
  bool is_running() const { return running_; }
  bool writes_outside() const;
  // Throws where what the call read is no longer what it was.
  void check_outside() const;

 private:
  struct Outside {
    Ref<Storage> storage;
    uint32_t version = 0;  // when the call was over
    Ref<Storage> before;   // a copy of its content, where the call wrote it
  };
  struct Repetition;
  void compare(const Tensor& t);
  void repeat();
  void exchange_content();

  std::function<void()> again_;
  std::shared_ptr<HookKeeper> call_;
  Generator generator_;
  AutocastMode autocast_;
  std::unordered_map<const Storage*, Outside> outside_;
  std::unordered_set<const Storage*> inside_;  // made by the call that runs
  std::vector<Kept> kept_;
  std::vector<Tensor> given_;  // by number, of the repetition
  std::vector<uint32_t> versions_;
  size_t live_ = 0;  // numbers that nodes may still ask for
  bool running_ = false, repeating_ = false, draws_ = false;
};

}  // namespace lutra
