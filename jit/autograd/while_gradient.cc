// Calls a while_loop whose results take gradients; its results have a node of the tape. The loop counts its steps, and
// keeps what the backward reads of the first ones if that takes little memory. The backward of a longer loop runs all
// steps again first. Then it goes back through them. All steps are alike (Request::filled).
#include "jit/autograd/control_node.h"
#include "jit/device/backend.h"
#include "ops/decompose/emit.h"

namespace lutra {
namespace {

using Tensors = std::vector<Tensor>;
using Request = TracedFunction::Request;
using Argument = TracedFunction::Argument;
using Reader = TracedFunction::Reader;
using Backward = TracedFunction::Backward;

constexpr int64_t kMaxKept = 32, kMinKept = 4, kMaxKeptBytes = int64_t(4) << 20;

// Returns for how many steps the body's further results are kept. Their memory is allocated before the number of steps
// is known. A device that runs the steps by itself keeps none.
int64_t steps_kept(const TracedFunction& body, Device device) {
  if (backend_of(device).preferences.leaves_processors) return 0;
  const std::vector<TensorType> results = body.forward()->results();
  int64_t bytes = 0;
  for (size_t k = body.carried(); k < results.size(); k++) {
    int64_t n = int64_t(size_of(results[k].dtype));
    for (SymInt s : results[k].sizes) n *= s.hint;
    bytes += n;
  }
  if (bytes == 0) return 0;
  const int64_t kept = std::min(kMaxKept, kMaxKeptBytes / bytes);
  return kept < kMinKept ? 0 : kept;
}

// Returns f with the number of steps as a parameter behind the carried ones. A body also returns the next number.
FunctionRef counting(const FunctionRef& f, size_t carried, const Tensor& steps, bool is_body) {
  return rebuilt(f, [&](Graph& graph, const Tensors&, Tensors results) {
    const Tensor n = input_like(graph, steps);
    std::rotate(graph.inputs.begin() + ptrdiff_t(carried), graph.inputs.end() - 1, graph.inputs.end());
    std::rotate(graph.input_nodes.begin() + ptrdiff_t(carried), graph.input_nodes.end() - 1, graph.input_nodes.end());
    if (is_body) results.insert(results.begin() + ptrdiff_t(carried), add(n, Scalar(1)));
    return results;
  });
}

// Refuses a second differentiation, so that the loop runs as ordinary Lua.
struct SecondGradient final : GradNode {
  Refuse refuse;
  const char* name() const override { return "while_loop"; }
  std::vector<Tensor> apply(const std::vector<Tensor>&, bool) override {
    if (!tape_watch()) refuse("its gradient is differentiated");
    fail("while_loop: its gradient is differentiated within a graph");
  }
  void release() override {}
};

struct WhileNode final : ControlNode {
  std::shared_ptr<TracedFunction> body;
  SavedTensor steps;
  std::vector<SavedTensor> init, reads, made;  // made: the stack of each further result of the body; empty: none is
                                               // kept
  std::vector<bool> reached;                   // by read

  // Edges: the tensors that are read, then the carried ones.
  const char* name() const override { return "while_loop"; }
  void note_readers(FirstReaders& out) const override {
    note(out, reads, *body, body->first_read()), note(out, init, *body, 0);
  }
  bool saves() const override { return true; }
  void drop() override {
    steps.release();
    for (auto* list : {&init, &reads, &made}) {
      for (SavedTensor& t : *list) t.release();
    }
  }

  // Returns the values of the arguments [from, to) of b.
  Tensors values(const Backward& b, size_t from, size_t to, const Tensors& grads, const Tensors& sums,
                 const Tensors& read) const {
    Tensors out;
    for (size_t i = from; i < to; i++) {
      const Argument& a = b.arguments[i];
      if (a.kind == Argument::kGradient) {
        out.push_back(grads[a.index]);
      } else {
        out.push_back((a.kind == Argument::kSoFar ? sums : read)[a.index - body->first_read()]);
      }
    }
    return out;
  }

  // Returns the body with only those further results that b takes.
  FunctionRef saving(const Backward& b) const {
    return rebuilt(body->forward(), [&](Graph&, const Tensors&, const Tensors& made) {
      Tensors results(made.begin(), made.begin() + ptrdiff_t(body->carried()));
      for (size_t i = b.carried; i < b.carried + b.slices; i++) results.push_back(made[b.arguments[i].index]);
      return results;
    });
  }

  Request request(const JointCall& call, Tensors& grads, Tensors& sums, const Tensors& init_now,
                  const Tensors& read) const {
    Request r;
    r.filled = true;
    r.gradients.resize(body->all_results()), r.wanted.resize(body->parameters()), r.so_far.resize(body->parameters());
    for (size_t k = 0; k < body->carried(); k++) {
      if (!body->gives_gradient(k)) continue;
      grads[k] = grads[k] ? laid_as(grads[k], init_now[k]) : zeros_laid_as(init_now[k]);
      r.gradients[k] = strides_of(grads[k]);
      r.wanted[k] = true;
    }
    for (size_t i = 0; i < read.size(); i++) {
      if (!reached[i] || !next[i].node || !call.wanted(next[i])) continue;
      sums[i] = sums[i] ? laid_as(sums[i], read[i]) : zeros_laid_as(read[i]);
      r.so_far[body->first_read() + i] = strides_of(sums[i]);
      r.wanted[body->first_read() + i] = true;
    }
    return r;
  }

  std::vector<Tensor> apply_joint(JointCall& call) override {
    begin();
    // edge, parameter: the edge and the parameter of list[0].
    const auto with_history = [&](const std::vector<SavedTensor>& list, size_t edge, size_t parameter) {
      Tensors out;
      for (size_t i = 0; i < list.size(); i++) {
        const Edge* const history = call.create_graph ? &next[edge + i] : nullptr;
        out.push_back(unpack(list[i], body->first_reader_of_parameter(parameter + i), history));
      }
      return out;
    };
    const bool traced = steps.is_fake();
    const Tensors read = traced ? not_read(reads) : with_history(reads, 0, body->first_read());
    const Tensors from = with_history(init, reads.size(), 0);
    Tensors grads = call.grads, sums = so_far(call, reads.size());
    grads.resize(body->carried());
    for (size_t k = grads.size(); k-- > 0;) visit(call, k, grads[k]);
    const Backward& b = body->backward(request(call, grads, sums, from, read));
    LUTRA_CHECK(!b.step || b.loop, "steps of a while_loop whose backwards differ");
    for (size_t i = 0; traced && i < read.size(); i++) note_read(i, b);
    if (b.step) run(call, b, grads, sums, from, read);
    for (size_t k = 0; k < grads.size(); k++) {
      const Edge& e = next[reads.size() + k];
      if (!e.node || !call.wanted(e)) grads[k] = Tensor();
    }
    return joined(sums, grads);
  }

  static Tensors not_read(const std::vector<SavedTensor>& list) {
    Tensors out;
    for (const SavedTensor& t : list) out.push_back(t.fake());
    return out;
  }
  // Notes that the body reads its i-th read tensor, in the scope of the branches that its reader is in. n: the first of
  // these to enter. If steps are run again, the body itself reads the tensor.
  void note_read(size_t i, const Reader& reader, size_t n = 0) const {
    if (n == reader.size()) {
      unpack_written(reads[i], body->first_reader_of_parameter(body->first_read() + i));
      return;
    }
    const Argument& flag = reader[n].flag;
    if (flag.kind != Argument::kResult || made.empty()) return note_read(i, reader, n + 1);
    const BranchReads within(made[flag.index - body->carried()].fake(), reader[n].holds, steps.fake());
    note_read(i, reader, n + 1);
  }
  void note_read(size_t i, const Backward& b) const {
    for (size_t k = 0; k < b.arguments.size(); k++) {
      if (b.arguments[k].kind != Argument::kParameter || b.arguments[k].index != body->first_read() + i) continue;
      for (const Reader& reader : b.readers[k]) note_read(i, reader);
      return;
    }
    note_read(i, Reader());
  }

  void run(const JointCall& call, const Backward& b, Tensors& grads, Tensors& sums, const Tensors& from,
           const Tensors& read) const {
    const ControlFunction again{saving(b), read};
    const size_t first = b.carried + b.slices;
    const ControlFunction back{b.loop, values(b, first, b.arguments.size(), grads, sums, read)};
    const Tensors start = values(b, 0, b.carried, grads, sums, read);
    Tensors saved;
    for (size_t i = b.carried; i < first && !made.empty(); i++)
      saved.push_back(unpack(made[b.arguments[i].index - body->carried()], nullptr));
    Results results;
    {
      GradModeScope no_grad(false);
      results = call_while_loop_back(again, back, unpack(steps, nullptr), from, start, saved);
    }
    if (call.create_graph) set_second(results, joined(joined(read, from), joined(start, back.reads)));
    for (size_t i = 0; i < body->parameters(); i++) {
      if (b.gives[i] < 0) continue;
      (i < body->carried() ? grads[i] : sums[i - body->first_read()]) = results[size_t(b.gives[i])];
    }
  }
  void set_second(const Results& results, const Tensors& inputs) const {
    if (std::none_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t->requires_grad; })) return;
    if (tape_watch()) return mark_differentiable(results);
    auto node = make_ref<SecondGradient>();
    node->refuse = refuse;
    link(*node, inputs);
    for (size_t k = 0; k < results.size(); k++) set_history(results[k], Ref<GradNode>(node.get()), uint32_t(k));
  }
};

// Returns, by read tensor, true if gradients of the loop's results reach it.
std::vector<bool> reached_reads(TracedFunction& f) {
  std::vector<size_t> results;
  for (size_t k = 0; k < f.carried(); k++) {
    if (f.gives_gradient(k)) results.push_back(k);
  }
  std::vector<bool> out(f.parameters() - f.first_read());
  for (size_t i : f.reach(results)) {
    if (i >= f.first_read()) out[i - f.first_read()] = true;
  }
  return out;
}

}  // namespace

void check_steps_alike(const RecordedFunction& body, const Refuse& refuse) {
  if (!body.traced) return;
  for (size_t k = 0; k < body.traced->carried(); k++) {
    if (body.traced->takes_gradient(k) && !body.traced->gives_gradient(k)) {
      refuse("what it carries takes a gradient in its first step only");
    }
  }
}

Tensors reached_by_loop(const RecordedFunction& body) {
  Tensors out;
  if (!body.traced) return out;
  const std::vector<bool> reached = reached_reads(*body.traced);
  for (size_t i = 0; i < reached.size(); i++) {
    if (reached[i]) out.push_back(body.plain.reads[i]);
  }
  return out;
}

Results call_while_loop(const ControlFunction& test, const RecordedFunction& body, const Tensors& carried,
                        const Refuse& refuse) {
  if (!body.traced) return call_while_loop(test, body.plain, carried);
  TracedFunction& f = *body.traced;
  check_steps_alike(body, refuse);
  auto node = make_ref<WhileNode>();
  link(*node, joined(body.plain.reads, carried));
  const int64_t kept = steps_kept(f, carried[0]->device());
  Results results;
  {
    GradModeScope no_grad(false);
    const Tensor none = full({}, Scalar(0), DType::kInt64, carried[0]->device());
    const ControlFunction counted_test{counting(test.function, f.carried(), none, false), test.reads};
    const FunctionRef& each = kept > 0 ? f.forward() : body.plain.function;
    const ControlFunction counted{counting(each, f.carried(), none, true), body.plain.reads};
    results = call_while_loop(counted_test, counted, joined(carried, {none}), kept);
  }
  node->body = body.traced, node->refuse = refuse, node->reached = reached_reads(f);
  node->steps = SavedTensor::elements_of(results[f.carried()]);
  node->init = saved(carried, always), node->reads = saved(body.plain.reads, always);
  node->made = saved({results.begin() + ptrdiff_t(f.carried()) + 1, results.end()}, always);
  for (size_t k = 0; k < f.carried(); k++) {
    if (f.gives_gradient(k)) set_history(results[k], Ref<GradNode>(node.get()), uint32_t(k));
  }
  results.resize(f.carried());
  return results;
}

}  // namespace lutra
