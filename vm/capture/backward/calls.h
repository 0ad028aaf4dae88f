// Captures Lua code that a backward calls, as a graph under guards that becomes part of the backward's graph: gradient
// hooks, backwards of functions and of modules' hooks, calls that a checkpoint repeats.
//
// Invariants:
// 1. A call's results depend only on the tensors that the backward passes to it, and on numbers and tensors that its
//    guards find. A call with effects is refused: the engine runs it between two parts.
// 2. Guards check only the properties of a gradient, not its elements. Equal facts, sizes and numbers of a part imply
//    these properties. So guards run before the gradient exists, with a tensor without memory in its place.
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
  std::shared_ptr<Entry> entry;  // guards and results
  std::unique_ptr<Graph> graph;
  // By input of the graph: index among the tensors that the call receives; -1: the guards find it.
  std::vector<int> given;
  std::vector<Tensor> stand_ins;  // by tensor that the call receives: stand-ins for those that do not exist yet
  std::vector<Tensor> kept;       // values of the graph that a checkpoint's nodes save, in order
  std::vector<unsigned> slots;    // slots that the function's code reads
  unsigned parameters = 0;
  bool varargs = false;
  std::string place;
  lua_State* L = nullptr;
  std::weak_ptr<bool> alive;
  CapturedCall() = default;
  CapturedCall(const CapturedCall&) = delete;
  ~CapturedCall();
};

// What misses have shown about the calls with one key, as for a compiled function (TraceOptions).
struct CallLessons {
  std::map<std::string, std::set<std::string>> values;  // by source: numbers and strings that were passed
  std::set<std::string> loose_functions;
};

// A call that cannot be part of a graph. odd: it may be possible in the next backward.
struct CallRefused {
  uint64_t key;
  std::string why;
  bool odd = false;
};

// A tensor that a call receives.
struct GivenTensor {
  Tensor fake;  // value of the graph being recorded; null: nil
  Tensor real;  // null: it does not exist yet
  bool requires_grad = false;
};

class CallCaptures final : public CallBook {
 public:
  explicit CallCaptures(TraceState& state) : state_(state) {}
  // Returns a key made from prototypes and from the kind of a called object. Closures and objects that are made anew
  // for each step have the same key.
  uint64_t key(const LuaCallee& callee) override;
  const std::string* refused(uint64_t key) const override;
  std::vector<std::pair<int, Tensor>> tensors(const LuaCallee& callee) override;
  // Refuses a call. An odd one is refused only until the next backward, the first times.
  void refuse(const CallRefused& refused);
  void begin_backward();
  void clear() { refused_.clear(), lessons_.clear(); }
  // Captures a call. Throws CallRefused.
  std::shared_ptr<CapturedCall> capture(const PartCall& call, const std::vector<GivenTensor>& given) const;
  // Returns whether its guards hold for the tensors of `part` that the call receives. If so, appends the inputs that
  // the guards find to the part's tensors and numbers.
  bool holds(const CapturedCall& captured, const PartCall& call, BackwardPart& part);

 private:
  TraceOptions options_for(uint64_t key) const;
  struct Refusal {
    std::string why;
    int times = 0;
    bool now = false, for_good = false;
  };
  // Refusals and lessons, by key.
  std::unordered_map<uint64_t, Refusal> refused_;
  std::unordered_map<uint64_t, CallLessons> lessons_;
  TraceState& state_;
};

// A replay of the graph of a call in the graph that is being recorded. Errors of ops propagate.
class CallReplay {
 public:
  // inputs: one for each input of the graph. first_draw: the call index of its first random number.
  CallReplay(const CapturedCall& call, std::vector<Tensor> inputs, std::vector<Scalar> numbers, Graph& into,
             int first_draw);
  Tensor value(const Tensor& t) const;  // returns the new value for a value of the call's graph
  Tensor result(size_t i) const;        // returns result i; null: nil

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
