// A checkpointed call (lt.checkpoint): its nodes save nothing. At the first request for a saved tensor it repeats the
// call, and the repetition gives the tensors.
//
// Invariants:
// 1. The nodes are those of the first call. The repetition only gives them their tensors, in the order in which they
//    were saved. So gradients are eager's bit for bit, hooks and double backward included.
// 2. The repetition runs with the random state, the modes and the elements of the first call. Outside memory that the
//    call wrote has its former content meanwhile, and its present content afterwards.
// 3. Outside memory that the call read must not have been written since. Otherwise an error is raised, never a wrong
//    gradient.
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
  // again: repeats the call. call: identifies the function that `again` calls, for code that knows it.
  Checkpoint(std::function<void()> again, std::shared_ptr<HookKeeper> call);
  // The call is made once, between begin and end.
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
  // For code that repeats the call in another way, with the modes of the first call. Null if nothing may be requested
  // any more.
  const std::shared_ptr<HookKeeper>& call() const { return call_; }
  const std::vector<Kept>& kept() const { return kept_; }
  const Generator& generator() const { return generator_; }
  const AutocastMode& autocast() const { return autocast_; }
  bool draws() const { return draws_; }
  size_t live() const { return live_; }
  bool is_running() const { return running_; }
  bool writes_outside() const;
  // Throws if outside memory that the call read has changed.
  void check_outside() const;

 private:
  struct Outside {
    Ref<Storage> storage;
    uint32_t version = 0;  // at the end of the call
    Ref<Storage> before;   // a copy of its former content, if the call wrote it
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
  std::unordered_set<const Storage*> inside_;  // made by the running call
  std::vector<Kept> kept_;
  std::vector<Tensor> given_;  // the repetition's tensors, by number
  std::vector<uint32_t> versions_;
  size_t live_ = 0;  // the number of saved tensors that nodes may still request
  bool running_ = false, repeating_ = false, draws_ = false;
};

}  // namespace lutra
