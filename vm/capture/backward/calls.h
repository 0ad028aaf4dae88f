// Lua code that a backward calls (hooks of gradients, backwards of functions and of modules' hooks, what a checkpoint
// repeats) as a part of its graph: a call in, its graph under guards out.
//
// Invariants:
// 1. What a call does is a function of the tensors that the backward gives it, and of numbers and tensors that its
//    guards find. One with effects is refused: the engine makes it between two parts.
// 2. Guards ask of a gradient only what it is like. Equal facts, sizes and numbers of a part say that; so guards are
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

// A call that was captured for tensors of one kind.
struct CapturedCall {
  std::shared_ptr<Entry> entry;  // guards, and what is returned
  std::unique_ptr<Graph> graph;
  // By input of the graph: which of the tensors that the call is given; -1: the guards find it.
  std::vector<int> given;
  std::vector<Tensor> stand_ins;  // by tensor that the call is given: for those that are not there yet
  std::vector<Tensor> kept;       // values of the graph that a checkpoint's nodes save, in order
  std::vector<unsigned> slots;    // which the function's code reads
  unsigned parameters = 0;
  bool varargs = false;
  std::string place;
  lua_State* L = nullptr;
  std::weak_ptr<bool> alive;
  CapturedCall() = default;
  CapturedCall(const CapturedCall&) = delete;
  ~CapturedCall();
};

// What misses have taught of the calls of one key, as of a compiled function (TraceOptions).
struct CallLessons {
  std::map<std::string, std::set<std::string>> values;  // by source: numbers and strings that came
  std::set<std::string> loose_functions;
};

// A call that is no part of a graph. odd: it may be in the next backward.
struct CallRefused {
  uint64_t key;
  std::string why;
  bool odd = false;
};

// A tensor that a call is given.
struct GivenTensor {
  Tensor fake;  // of the graph that is recorded; null: nil
  Tensor real;  // null: it is not there yet
  bool requires_grad = false;
};

class CallCaptures final : public CallBook {
 public:
  explicit CallCaptures(TraceState& state) : state_(state) {}
  // Of prototypes, and of the kind of an object that is called: those that are made for each step are one.
  uint64_t key(const LuaCallee& callee) override;
  const std::string* refused(uint64_t key) const override;
  std::vector<std::pair<int, Tensor>> tensors(const LuaCallee& callee) override;
  // An odd one until the next backward, the first times.
  void refuse(const CallRefused& refused);
  void begin_backward();
  void clear() { refused_.clear(), lessons_.clear(); }
  // Throws CallRefused.
  std::shared_ptr<CapturedCall> capture(const PartCall& call, const std::vector<GivenTensor>& given) const;
  // Whether its guards hold, on the tensors of `part` that the call is given. Then tensors and numbers have those of
  // its inputs that the guards find at their ends.
  bool holds(const CapturedCall& captured, const PartCall& call, BackwardPart& part);

 private:
  TraceOptions options_for(uint64_t key) const;
  struct Refusal {
    std::string why;
    int times = 0;
    bool now = false, for_good = false;
  };
  // By key.
  std::unordered_map<uint64_t, Refusal> refused_;
  std::unordered_map<uint64_t, CallLessons> lessons_;
  TraceState& state_;
};

// The graph of a call once more, in the graph that is being recorded, and its values. Throws what ops do.
class CallReplay {
 public:
  // inputs: by input of the graph. first_draw: the call index of its first random number.
  CallReplay(const CapturedCall& call, std::vector<Tensor> inputs, std::vector<Scalar> numbers, Graph& into,
             int first_draw);
  Tensor value(const Tensor& t) const;  // that stands now for this value of the graph
  Tensor result(size_t i) const;        // null: nil

 private:
  int32_t expr_of(const SymExpr& e);
  void begin();
  void run(const Node& n);

 public:
  SymInt size(SymInt s) const;
  Scalar scalar(Scalar s) const;
  Tensor tensor(const Tensor& t) const { return value(t); }

 private:
  const CapturedCall& call_;
  SymEnv& env_;
  const std::vector<Tensor> inputs_;
  const std::vector<Scalar> numbers_;
  Graph& into_;
  const int first_draw_;
  std::vector<int32_t> exprs_;
  std::unordered_map<const TensorImpl*, Tensor> values_;
};

}  // namespace lutra
