// Runs the engine once more on FakeTensors that stand for gradients, saved tensors and .grad.
#include "vm/capture/backward/record.h"

#include <algorithm>
#include <unordered_map>

#include "ops/core/error.h"
#include "ops/grad/saved_tensor.h"
#include "vm/bind/lua_node.h"
#include "vm/host/collector.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

constexpr int64_t kMaxDraws = int64_t{1} << 30;

// Sizes that are symbols. Two sizes that were equal in both runs are one symbol; multiples and products of symbols are
// expressions of them.
class Symbols {
 public:
  Symbols(Graph& graph, const BackwardPart& part, const PartSymbols& wanted)
      : graph_(graph), part_(part), wanted_(wanted) {}

  bool is_symbol(size_t at) const { return at < wanted_.sizes.size() && wanted_.sizes[at]; }
  // Makes symbols of the sizes of a tensor, from which others follow. `input` is the index of its input.
  void learn(size_t tensor, int input) {
    const size_t at = part_.tensor_sizes[tensor];
    const Tensor& t = part_.tensors[tensor];
    for (size_t d = 0; d < t->sizes.size(); d++) {
      if (!is_symbol(at + d) || find(pair(at + d))) continue;
      const int32_t leaf = graph_.env->leaf(SymOp::kSize, input, int32_t(d), t->sizes[d].hint);
      known_.push_back({pair(at + d), SymInt::of_expr(*graph_.env, leaf)});
    }
  }
  bool is_new(size_t at) const { return is_symbol(at) && !find(pair(at)); }
  // Returns size `at`. scalars: the graph's scalars, or null; one may be added for a size that no input tensor has.
  SymInt size(size_t at, std::vector<int32_t>* scalars) {
    if (!is_symbol(at)) return part_.sizes[at];
    SymInt n = expression(pair(at));
    if (n.is_constant() && scalars) {
      scalars->push_back(~int32_t(at));
      n = of_number(graph_.add_scalar("size", double(part_.sizes[at])));
      known_.push_back({pair(at), n});
    }
    n.is_constant() ? constants.push_back(uint32_t(at)) : used.push_back({uint32_t(at), n.expr});
    return n;
  }
  std::vector<uint32_t> constants;
  std::vector<std::pair<uint32_t, int32_t>> used;

 private:
  using Pair = std::pair<int64_t, int64_t>;  // the size now and in the other run
  Pair pair(size_t at) const { return {part_.sizes[at], wanted_.seen[at]}; }
  const SymInt* find(Pair p) const {
    for (const auto& [q, n] : known_) {
      if (q == p) return &n;
    }
    return nullptr;
  }
  // Returns k with p = q * k in both runs; 0 if there is none.
  static int64_t multiple(Pair p, Pair q) {
    if (q.first == 0 || q.second == 0 || p.first % q.first || p.second % q.second) return 0;
    const int64_t k = p.first / q.first;
    return p.second / q.second == k ? k : 0;
  }
  SymInt expression(Pair p) {
    if (const SymInt* n = find(p)) return *n;
    for (const auto& [q, n] : known_) {
      if (const int64_t k = multiple(p, q)) return n * SymInt(k);
      if (const int64_t k = multiple(q, p)) return floor_div(n, SymInt(k));
    }
    for (const auto& [q, n] : known_) {
      for (const auto& [r, m] : known_) {
        if (const int64_t k = multiple(p, {q.first * r.first, q.second * r.second})) return n * m * SymInt(k);
      }
    }
    return p.first;  // it stays a constant
  }

  SymInt of_number(const Scalar& number) {
    SymEnv& env = *graph_.env;
    const int32_t n = env.ask_integer(number.expr);
    env.ask(SymCmp::kLe, env.constant(int64_t{2}), n);
    return SymInt::of_expr(env, n);
  }

  Graph& graph_;
  const BackwardPart& part_;
  const PartSymbols& wanted_;
  std::vector<std::pair<Pair, SymInt>> known_;
};

class Recorder final : public Rehearsal {
 public:
  Recorder(Engine& engine, BackwardPart& part, const PartSymbols& symbols, CallCaptures& captures)
      : part_(part),
        captures_(captures),
        wanted_(symbols),
        symbols_(graph(), part, symbols),
        fakes_(part.tensors.size()),
        numbers_(part.numbers.size(), -1),
        engine_(engine) {}

  RecordedPart run();
  Ref<GradNode> stand_in(GradNode& node) override;
  Tensor& gradient_of(const GradNode& leaf) override;
  Tensor run_hook(const GradHook& hook, const Tensor& gradient) override;
  // Replays a call. gradients: its first tensors. Returns its first `count` results, null for nil.
  std::vector<Tensor> run_call(const void* id, const std::vector<Tensor>& gradients, size_t count);
  const PartCall& call_of(const void* id) const;
  CallReplay replayed(const PartCall& call, const std::vector<GivenTensor>& given, int first_draw);
  int first_to_draw() const;
  static int64_t draws_before(const PartCall& first, const PartCall& call);
  const std::vector<Tensor>& repeated(const Checkpoint& checkpoint);
  Tensor repeated(const SavedTensor& saved, size_t sizes);
  bool stops_at(const GradNode& leaf) override;
  Tensor& retained_gradient(const GradNode& node, size_t number) override;

 private:
  friend struct StandIn;
  friend struct RecordedLuaNode;
  Graph& graph() {
    if (!out_.graph) out_.graph = std::make_unique<Graph>();
    return *out_.graph;
  }
  Tensor input(size_t i);
  SymInt size(size_t at) { return symbols_.size(at, nullptr); }
  // Returns a node's own number, such as an index or a start.
  SymInt own_size(size_t at) { return symbols_.size(at, &out_.scalars); }
  Scalar number(size_t at);
  void choose_symbols();
  void give(PartResult::Kind kind, uint32_t place, uint32_t result, const Tensor& g);
  void give_all();

  BackwardPart& part_;
  CallCaptures& captures_;
  const PartSymbols& wanted_;
  RecordedPart out_{};
  Symbols symbols_;
  std::vector<Tensor> fakes_;  // indexed by tensor of the part
  std::unordered_map<const TensorImpl*, size_t> tensor_of_;
  std::vector<int> numbers_;  // scalars, indexed by number of the part
  std::unordered_map<const TensorImpl*, int> outputs_;
  Engine& engine_;
  Engine* rehearsed_ = nullptr;
  std::unordered_map<const Checkpoint*, std::vector<Tensor>> repeated_;
  std::vector<Tensor> marked_;  // values of the graph whose requires_grad was changed
  int draws_ = 0;               // number of call indices that checkpoints draw
  std::vector<std::pair<uint32_t, std::unique_ptr<Tensor>>> grads_;  // indexed by place of the leaf
  std::map<std::pair<uint32_t, size_t>, Tensor> retained_;           // with the same keys as in the part
};

// Replaces the values in the copy of a node by FakeTensors and symbols, beginning at its positions in the part.
struct StandIn final : NodeVisitor {
  Recorder& recorder;
  PartPlace at;
  StandIn(Recorder& recorder, PartPlace at) : recorder(recorder), at(at) {}
  void fact(uint64_t) override {}
  void object(const std::shared_ptr<const void>&) override {}
  void size(SymInt& n) override { n = recorder.own_size(at.sizes++); }
  void number(Scalar& n) override { n = recorder.number(at.numbers++); }
  void fixed(Tensor& t) override { t = recorder.input(at.tensors++); }
  void saved(SavedTensor& s, const char*) override {
    if (s.is_later() && !s.is_ready()) return become_repeated(s);
    if (s.keeps_elements()) {
      const Tensor fake = recorder.input(at.tensors++);
      at.sizes += 2 * fake->sizes.size();
      return s.become(fake);
    }
    at.tensors++;
    Sizes sizes = s.kept()->sizes, strides = s.kept()->strides;
    for (SymInt& n : sizes) n = recorder.size(at.sizes++);
    for (SymInt& n : strides) n = recorder.size(at.sizes++);
    s.lay(sizes, strides);
  }
  // Replaces a tensor that a checkpoint computes again. The data of the first node that needs the checkpoint also
  // contains the tensors that its call receives.
  void become_repeated(SavedTensor& s) {
    const PartCall& call = recorder.call_of(s.later());
    if (!call.tensors.empty() && call.tensors[0] == int(at.tensors)) {
      for (int t : call.tensors) at.sizes += 2 * recorder.part_.tensors[size_t(t)]->sizes.size();
      at.tensors += call.tensors.size();
    }
    const Tensor fake = recorder.repeated(s, at.sizes);
    at.sizes += fake->sizes.size();
    s.become(fake);
  }
};

Tensor Recorder::input(size_t i) {
  if (fakes_[i]) return fakes_[i];
  const Tensor& t = part_.tensors[i];
  Sizes sizes = t->sizes, strides = t->strides;
  const size_t at = part_.tensor_sizes[i];
  if (at != BackwardPart::kFixed) {
    symbols_.learn(i, int(graph().inputs.size()));
    for (SymInt& n : sizes) n = size(size_t(&n - sizes.begin()) + at);
    for (SymInt& n : strides) n = size(size_t(&n - strides.begin()) + at + sizes.size());
  }
  const char* name = i < part_.under_way ? "gradient" : i < part_.own_tensors ? "saved" : "read";
  fakes_[i] = graph().add_input(name, sizes, strides, t->dtype, t->device());
  fakes_[i]->requires_grad = t->requires_grad;
  tensor_of_[fakes_[i].get()] = i;
  out_.inputs.push_back(uint32_t(i));
  if (rehearsed_) rehearsed_->keep_apart(fakes_[i]);
  return fakes_[i];
}

Scalar Recorder::number(size_t at) {
  if (at >= wanted_.numbers.size() || !wanted_.numbers[at]) return part_.numbers[at];
  out_.scalars.push_back(int32_t(at));
  return graph().add_scalar("number", part_.numbers[at]);
}

bool Recorder::stops_at(const GradNode& leaf) { return leaf.place < part_.stops.size() && part_.stops[leaf.place]; }

Tensor Recorder::run_hook(const GradHook& hook, const Tensor& gradient) {
  return run_call(hook.live.get(), {gradient}, 1)[0];
}

const PartCall& Recorder::call_of(const void* id) const {
  const auto call = std::find_if(part_.calls.begin(), part_.calls.end(), [&](const PartCall& c) { return c.id == id; });
  LUTRA_CHECK(call != part_.calls.end(), "a call that the walk has not met");
  return *call;
}

std::vector<Tensor> Recorder::run_call(const void* id, const std::vector<Tensor>& gradients, size_t count) {
  const PartCall& call = call_of(id);
  std::vector<GivenTensor> given;
  for (size_t k = 0; k < call.tensors.size(); k++) {
    const int at = call.tensors[k];
    given.push_back(at < 0 ? GivenTensor{k < gradients.size() ? gradients[k] : Tensor(), Tensor()}
                           : GivenTensor{input(size_t(at)), part_.tensors[size_t(at)]});
  }
  for (const PartCall::Later& later : call.later) {
    given[later.tensor] = {repeated(*later.checkpoint)[later.number], Tensor(),
                           later.checkpoint->kept()[later.number].requires_grad};
  }
  try {
    const CallReplay replay = replayed(call, given, 0);
    std::vector<Tensor> results;
    for (size_t i = 0; i < count; i++) results.push_back(replay.result(i));
    return results;
  } catch (const NeedsData& e) {
    throw CallRefused{call.key, e.what()};
  }
}

CallReplay Recorder::replayed(const PartCall& call, const std::vector<GivenTensor>& given, int first_draw) {
  const std::shared_ptr<CapturedCall> captured = captures_.capture(call, given);
  const size_t first_tensor = part_.tensors.size(), first_number = part_.numbers.size();
  if (!captures_.holds(*captured, call, part_)) throw CallRefused{call.key, "its guards do not hold at once"};
  part_.tensor_sizes.resize(part_.tensors.size(), BackwardPart::kFixed);
  fakes_.resize(part_.tensors.size());
  std::vector<Tensor> inputs;
  size_t next = first_tensor;
  for (int k : captured->given) inputs.push_back(k >= 0 ? given[size_t(k)].fake : input(next++));
  std::vector<Scalar> numbers;
  for (size_t at = first_number; at < part_.numbers.size(); at++) {
    out_.scalars.push_back(int32_t(at));
    numbers.push_back(graph().add_scalar("number", part_.numbers[at]));
  }
  out_.calls.emplace_back(uint32_t(&call - part_.calls.data()), captured);
  return CallReplay(*captured, std::move(inputs), std::move(numbers), graph(), first_draw);
}

// first_to_draw returns the part's checkpoint that drew first (-1 if none did). draws_before returns how many call
// indices after `first` the checkpoint of `call` began.
int Recorder::first_to_draw() const {
  int first = -1;
  for (size_t i = 0; i < part_.calls.size(); i++) {
    const auto& checkpoint = part_.calls[i].repeats;
    if (checkpoint && checkpoint->draws() &&
        (first < 0 || draws_before(part_.calls[size_t(first)], part_.calls[i]) < 0))
      first = int(i);
  }
  return first;
}

int64_t Recorder::draws_before(const PartCall& first, const PartCall& call) {
  return int64_t(call.repeats->generator().next_call - first.repeats->generator().next_call);
}

// Returns the tensors that a checkpoint's call saves, indexed by their number.
const std::vector<Tensor>& Recorder::repeated(const Checkpoint& checkpoint) {
  const auto [made, fresh] = repeated_.try_emplace(&checkpoint);
  if (!fresh) return made->second;
  const PartCall& call = call_of(&checkpoint);
  const int first = checkpoint.draws() ? first_to_draw() : -1;
  const int64_t begin = first < 0 ? 0 : draws_before(part_.calls[size_t(first)], call);
  std::vector<GivenTensor> given;
  for (int at : call.tensors) given.push_back({input(size_t(at)), part_.tensors[size_t(at)]});
  if (begin >= kMaxDraws) throw CallRefused{call.key, "it draws random numbers long after another checkpoint"};
  const CallReplay replay = replayed(call, given, int(begin));
  const CapturedCall& captured = *out_.calls.back().second;
  if (captured.graph->rng_calls) {
    if (first < 0) throw CallRefused{call.key, "it draws random numbers, which its first call did not", true};
    if (part_.calls[size_t(first)].repeats->generator().seed != checkpoint.generator().seed)
      throw CallRefused{call.key, "it draws random numbers of another seed than another checkpoint"};
    out_.draws_of = first;
    draws_ = std::max(draws_, int(begin) + captured.graph->rng_calls);
    graph().rng_calls = 0;
  }
  const auto& kept = checkpoint.kept();
  bool same = kept.size() == captured.kept.size();
  for (size_t i = 0; same && i < kept.size(); i++) {
    made->second.push_back(replay.value(captured.kept[i]));
    const Tensor& t = made->second.back();
    same = t->dtype == kept[i].dtype && t->sizes.size() == kept[i].sizes.size();
    for (size_t d = 0; same && d < t->sizes.size(); d++) same = t->sizes[d].hint == kept[i].sizes[d].hint;
    // Gradient rules check requires_grad of the tensors that they have saved.
    if (t->requires_grad == kept[i].requires_grad) continue;
    t->requires_grad = kept[i].requires_grad;
    marked_.push_back(t);
  }
  if (!same) throw CallRefused{call.key, "it saves other tensors than its first call did", true};
  return made->second;
}

// Returns a tensor that a checkpoint's call saves. sizes: index of the sizes in the part that it must have.
Tensor Recorder::repeated(const SavedTensor& saved, size_t sizes) {
  const auto& checkpoint = dynamic_cast<const Checkpoint&>(*saved.later());
  const Tensor& t = repeated(checkpoint)[saved.number()];
  for (size_t d = 0; d < t->sizes.size(); d++) {
    if (!(t->sizes[d] == size(sizes + d)))
      throw CallRefused{call_of(&checkpoint).key, "it saves tensors of other sizes than its first call did", true};
  }
  return t;
}

// A node that stands for a LuaNode.
struct RecordedLuaNode final : GradNode {
  Recorder& recorder;
  const LuaNode& node;
  RecordedLuaNode(Recorder& recorder, const LuaNode& node) : recorder(recorder), node(node) {}
  const char* name() const override { return node.name(); }
  std::vector<Tensor> apply(const std::vector<Tensor>& grads, bool) override {
    std::vector<Tensor> given = grads;
    given.resize(node.results);
    return recorder.run_call(&node, given, node.next.size());
  }
  void release() override {}
};

// Makes inputs of the tensors whose sizes are new symbols, those with elements before those without.
void Recorder::choose_symbols() {
  for (const bool fake : {false, true}) {
    for (size_t i = 0; i < part_.tensors.size(); i++) {
      const size_t at = part_.tensor_sizes[i];
      if (at == BackwardPart::kFixed || part_.tensors[i]->is_fake() != fake) continue;
      for (size_t d = 0; d < part_.tensors[i]->sizes.size(); d++) {
        if (symbols_.is_new(at + d)) input(i);
      }
    }
  }
}

Ref<GradNode> Recorder::stand_in(GradNode& node) {
  if (const auto* lua = dynamic_cast<const LuaNode*>(&node)) return Ref<GradNode>(new RecordedLuaNode(*this, *lua));
  Ref<GradNode> copy = node.copy();
  StandIn visitor(*this, part_.begins[node.place]);
  LUTRA_CHECK(copy && copy->visit(visitor), node.name(), " cannot be copied");
  if (node.joint) out_.joint.emplace_back(node.place, copy);
  return copy;
}

Tensor& Recorder::gradient_of(const GradNode& leaf) {
  const uint32_t place = leaf.place;
  const int grad = place < part_.grads.size() ? part_.grads[place] : -1;
  grads_.emplace_back(place, std::make_unique<Tensor>(grad < 0 ? Tensor() : input(size_t(grad))));
  return *grads_.back().second;
}

Tensor& Recorder::retained_gradient(const GradNode& node, size_t number) {
  const auto [at, fresh] = retained_.try_emplace({node.place, number});
  if (!fresh) return at->second;
  const int grad = part_.retained.at(at->first);
  if (grad >= 0) at->second = input(size_t(grad));
  return at->second;
}

void Recorder::give(PartResult::Kind kind, uint32_t place, uint32_t result, const Tensor& g) {
  if (!g) return;
  int from;
  if (const auto in = tensor_of_.find(g.get()); in != tensor_of_.end()) {
    from = ~int(in->second);
  } else {
    const auto [at, fresh] = outputs_.emplace(g.get(), int(graph().outputs.size()));
    if (fresh) graph().outputs.emplace_back(g);
    from = at->second;
  }
  out_.results.push_back({kind, place, result, from});
}

void Recorder::give_all() {
  const auto give_pending = [&](PartResult::Kind kind, const Pending& p) {
    for (size_t k = 0; k < p.grads.size(); k++) give(kind, p.node->place, uint32_t(k), p.grads[k]);
  };
  for (const auto& [seq, p] : rehearsed_->nodes()) give_pending(PartResult::kNode, p);
  const auto& leaves = rehearsed_->leaves();
  for (size_t i = rehearsed_->leaves_done(); i < leaves.size(); i++) give_pending(PartResult::kLeaf, leaves[i]);
  for (size_t i = 0; i < rehearsed_->results.size(); i++) {
    give(PartResult::kTarget, uint32_t(i), 0, rehearsed_->results[i]);
  }
  // An existing gradient was written in place.
  for (const auto& [place, g] : grads_) {
    if (!tensor_of_.count(g->get())) give(PartResult::kGrad, place, 0, *g);
  }
  for (const auto& [at, g] : retained_) give(PartResult::kRetained, at.first, uint32_t(at.second), g);
  for (const GradNode* node : rehearsed_->ran) out_.ran.push_back(node->place);
}

RecordedPart Recorder::run() {
  const SymScope symbols(graph().env.get());
  graph().env->assume_sizes({2, INT64_MAX});
  choose_symbols();
  size_t next = 0;
  Engine rehearsed = engine_.rehearsed(*this, [&](const Tensor&) { return input(next++); });
  rehearsed_ = &rehearsed;
  for (const Tensor& fake : fakes_) {
    if (fake) rehearsed.keep_apart(fake);
  }
  GraphRecorder recorder(graph());
  {
    const CollectorPause no_finalizers(current_lua());
    const ModeScope mode(&recorder);
    rehearsed.run_above(part_.stop);
  }
  for (const Tensor& t : marked_) t->requires_grad = !t->requires_grad;
  give_all();
  out_.symbols = symbols_.used, out_.constants = symbols_.constants;
  if (graph().rng_calls > 0) throw NeedsData("a backward that draws random numbers");
  graph().rng_calls = draws_;
  if (!constants_of(graph()).empty()) throw NeedsData("a backward that reads a tensor which no node saved");
  return std::move(out_);
}

}  // namespace

RecordedPart record_part(Engine& engine, BackwardPart& part, const PartSymbols& symbols, CallCaptures& captures) {
  part.drop_calls_values();
  return Recorder(engine, part, symbols, captures).run();
}

}  // namespace lutra
