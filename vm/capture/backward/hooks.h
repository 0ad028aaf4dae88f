// Hooks of gradients as a part of a backward's graph: the function of a hook in, its graph under guards out.
//
// Invariants:
// 1. What a hook does is a function of the gradient, and of numbers and tensors that its guards find. One with effects
//    is refused: the engine calls it between two parts.
// 2. Guards ask of the gradient only what it is like. Equal facts, sizes and numbers of a part say that; so guards are
//    asked before the gradient is there, with a tensor without memory in its place.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "vm/capture/backward/walk.h"
#include "vm/capture/segment/entry.h"

struct lua_State;

namespace lutra {

struct LuaCode;
struct TraceState;

// How a hook is called: which slots, and whether the gradient comes as a vararg.
struct HookCall {
  std::vector<unsigned> slots;
  bool vararg = false;
};

// A hook that was captured for gradients of one kind.
struct CapturedHook {
  std::shared_ptr<Entry> entry;  // guards, and what is returned
  std::unique_ptr<Graph> graph;
  int gradient = -1;  // which input; -1: the graph does not read it
  Tensor stand_in;    // for the gradient
  HookCall call;
  std::string place;
  lua_State* L = nullptr;
  std::weak_ptr<bool> alive;
  CapturedHook() = default;
  CapturedHook(const CapturedHook&) = delete;
  ~CapturedHook();
};

// What misses have taught of the hooks of a prototype, as of a compiled function (TraceOptions).
struct HookLessons {
  std::map<std::string, std::set<std::string>> values;  // by source: numbers and strings that came
  std::set<std::string> loose_functions;
};

// A hook that is no part of a graph.
struct HookRefused {
  const void* prototype;
  std::string why;
};

class HookCaptures final : public HookBook {
 public:
  explicit HookCaptures(TraceState& state) : state_(state) {}
  const void* prototype(const GradHook& hook) override;
  const std::string* refused(const void* prototype) const override;
  void refuse(const HookRefused& refused) { refused_[refused.prototype] = refused.why; }
  void clear() { refused_.clear(), lessons_.clear(); }
  // gradient: a FakeTensor. Throws HookRefused.
  std::shared_ptr<CapturedHook> capture(const PartHook& hook, const Tensor& gradient) const;
  // Whether its guards hold; then tensors and numbers have those of its inputs at their ends, the gradient left out.
  bool holds(const CapturedHook& captured, const PartHook& hook, std::vector<Tensor>& tensors,
             std::vector<double>& numbers);

 private:
  TraceOptions options_for(const void* prototype) const;

  TraceState& state_;
  std::unordered_map<const void*, std::string> refused_;  // by prototype
  std::unordered_map<const void*, HookLessons> lessons_;  // likewise
};

// The graph of a hook once more, in the graph that is being recorded. inputs: the gradient at its place. Gives what the
// hook returns, null for nil. Throws what ops do.
Tensor replay_hook(const CapturedHook& hook, const std::vector<Tensor>& inputs, const std::vector<Scalar>& numbers);

}  // namespace lutra
