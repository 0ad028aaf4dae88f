// Watches a call, then repeats it.
#include "ops/grad/checkpoint.h"

#include <algorithm>

#include "ops/core/error.h"
#include "ops/defs/autocast.h"

namespace lutra {
namespace {

Ref<Storage> copy_of(const Storage& s) {
  Ref<Storage> copy = allocate(s.nbytes, s.device);
  copy_bytes(copy->data, s.device, s.data, s.device, s.nbytes);
  return copy;
}

[[noreturn]] void fail_otherwise(const std::string& how) {
  fail("checkpoint: the function did otherwise when it was run again for the backward: ", how,
       ". What it does may depend on its arguments, on what it reads without writing, and on random numbers only");
}

}  // namespace

Checkpoint::Checkpoint(std::function<void()> again, std::shared_ptr<HookKeeper> call)
    : again_(std::move(again)), call_(std::move(call)), generator_(default_generator()), autocast_(autocast_mode()) {}

void Checkpoint::begin() {
  running_ = true;
  modes().watch = Ref<CallWatch>(this);
}

void Checkpoint::end() {
  const Ref<CallWatch> keep_alive = std::exchange(modes().watch, nullptr);
  running_ = false;
  const Generator& now = default_generator();
  draws_ = now.seed != generator_.seed || now.next_call != generator_.next_call;
  inside_.clear();
  for (auto& [key, out] : outside_) out.version = out.storage->version;
}

void Checkpoint::takes(const Tensor& t) {
  const Storage* s = t->storage.get();
  if (s->fake || repeating_ || inside_.count(s) || outside_.count(s)) return;
  outside_[s].storage = t->storage;
}

void Checkpoint::made(const Tensor& t) {
  const Storage* s = t->storage.get();
  if (!repeating_ && !outside_.count(s)) inside_.insert(s);
}

void Checkpoint::writes(const Tensor& t) {
  if (repeating_) return;
  takes(t);
  const auto at = outside_.find(t->storage.get());
  if (at != outside_.end() && !at->second.before) at->second.before = copy_of(*at->second.storage);
}

void Checkpoint::compare(const Tensor& t) {
  const size_t number = given_.size();
  if (number >= kept_.size()) fail_otherwise(str("it saved more than ", kept_.size(), " tensors"));
  const Kept& then = kept_[number];
  if (t->dtype != then.dtype || to_string(t->sizes) != to_string(then.sizes)) {
    fail_otherwise(str("tensor ", number, " is ", describe(t), ", it had the sizes ", to_string(then.sizes)));
  }
}

bool Checkpoint::keeps(const Tensor& t, uint32_t saver, size_t& number) {
  if (repeating_) {
    compare(t);
    given_.push_back(alias(t, t->sizes, t->strides, t->offset));
    given_.back()->requires_grad = t->requires_grad;
    versions_.push_back(t->storage->version);
    return false;
  }
  number = kept_.size();
  kept_.push_back({t->storage->version, t->sizes, t->dtype, t->requires_grad, saver});
  live_++;
  return true;
}

bool Checkpoint::writes_outside() const {
  return std::any_of(outside_.begin(), outside_.end(), [](const auto& out) { return bool(out.second.before); });
}

void Checkpoint::check_outside() const {
  for (const auto& [key, out] : outside_) {
    if (out.storage->freed) fail("checkpoint: a tensor that its function read was freed (x:free())");
    if (out.storage->version == out.version) continue;
    fail("checkpoint: a tensor that its function read has been modified by an inplace operation: it is at version ",
         out.storage->version, ", expected version ", out.version);
  }
}

// Swaps the content of outside memory that the call wrote with its copy.
void Checkpoint::exchange_content() {
  for (auto& [key, out] : outside_) {
    if (!out.before) continue;
    const Ref<Storage> now = copy_of(*out.storage);
    copy_bytes(out.storage->data, now->device, out.before->data, now->device, now->nbytes);
    out.before = now;
  }
}

// Restores the modes of the first call for a scope. At its end the versions of outside memory are as before.
struct Checkpoint::Repetition {
  Checkpoint& self;
  const Generator generator = default_generator();
  const AutocastMode autocast = autocast_mode();
  const Ref<CallWatch> watch = modes().watch;
  const GradModeScope grad{true};
  explicit Repetition(Checkpoint& c) : self(c) {
    self.exchange_content();
    default_generator() = self.generator_;
    set_autocast_mode(self.autocast_);
    modes().watch = Ref<CallWatch>(&self);
    self.repeating_ = true;
  }
  ~Repetition() {
    self.repeating_ = false;
    modes().watch = watch;
    set_autocast_mode(autocast);
    default_generator() = generator;
    self.exchange_content();
    for (auto& [key, out] : self.outside_) out.storage->version = out.version;
  }
};

void Checkpoint::repeat() {
  if (current_mode()) throw NeedsData("what a function under lt.checkpoint saved is computed again");
  if (running_) fail("checkpoint: its function asks for gradients of what it has not yet returned");
  check_outside();
  const Ref<Checkpoint> keep_alive(this);
  // Drops an incomplete set of tensors, whatever ends the function: an error of Lua, too.
  struct GivenWhole {
    Checkpoint& self;
    bool whole = false;
    ~GivenWhole() {
      if (!whole) self.given_.clear(), self.versions_.clear();
    }
  } attempt{*this};
  const Repetition scope(*this);
  again_();
  if (given_.size() < kept_.size()) {
    fail_otherwise(str("it saved ", given_.size(), " tensors, not ", kept_.size()));
  }
  attempt.whole = true;
}

Tensor Checkpoint::give(size_t number, const char* op) {
  if (given_.empty()) repeat();
  const Tensor& t = given_[number];
  const bool from_outside = outside_.count(t->storage.get()) > 0;
  const uint32_t then = from_outside ? kept_[number].version : versions_[number];
  if (t->storage->version != then) fail_modified(t, op, t->storage->version, then);
  return t;
}

void Checkpoint::drop(size_t number) {
  if (number < given_.size()) given_[number] = Tensor();
  if (--live_ > 0) return;
  // No node requests a tensor any more.
  again_ = nullptr, call_ = nullptr;
  outside_.clear(), given_.clear();
}

}  // namespace lutra
