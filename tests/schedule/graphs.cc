// See graphs.h.
#include "tests/schedule/graphs.h"

#include <cmath>
#include <cstring>

#include "jit/compile.h"
#include "jit/passes/passes.h"
#include "jit/schedule/schedule.h"
#include "ops/core/settings.h"
#include "ops/defs/element.h"
#include "ops/grad/tape.h"

namespace lutra {
namespace {

Scalar scalar_op(SymOp op, const Scalar& a, const Scalar& b) { return scalar_binary(op, a, b); }

struct Adam {
  Scalar lr, step_size, correction, decay;

  void update(const Tensor& p, const Tensor& grad, const Tensor& m, const Tensor& v) const {
    call_inplace(OpId::mul, {p, decay});
    call_inplace(OpId::lerp, {m, grad, Scalar(1 - 0.9)});
    call_inplace(OpId::mul, {v, Scalar(0.999)});
    call_inplace(OpId::addcmul, {v, grad, grad, Scalar(1 - 0.999)});
    Tensor root = op1(OpId::div, {op1(OpId::sqrt, {v}), correction});
    Tensor denominator = op1(OpId::add, {root, Scalar(1e-8), Scalar(1.0)});
    call_inplace(OpId::addcdiv, {p, m, denominator, step_size});
  }
};

}  // namespace

std::unique_ptr<Graph> train_step_graph(int64_t in, int64_t hidden, int64_t classes, int64_t batch) {
  auto g = std::make_unique<Graph>();
  SymScope symbols(g->env.get());
  SymInt n = SymInt::of_expr(*g->env, g->env->leaf(SymOp::kSize, 0, 0, batch));
  auto input = [&](const std::string& name, const Sizes& sizes, DType type = DType::kFloat32) {
    return g->add_input(name, sizes, contiguous_strides(sizes), type);
  };
  Tensor x = input("x", {n, in}), y = input("y", {n}, DType::kInt64);
  const int64_t sizes[] = {in, hidden, hidden, classes};
  std::vector<Tensor> params, m, v;
  for (int i = 0; i < 3; i++) {
    for (const Sizes& s : {Sizes{sizes[i + 1], sizes[i]}, Sizes{sizes[i + 1]}}) {
      params.push_back(input("p" + std::to_string(params.size()), s));
      params.back()->requires_grad = true;
    }
  }
  for (const Tensor& p : params) {
    m.push_back(input("m", p->sizes));
    v.push_back(input("v", p->sizes));
  }
  Scalar lr = g->add_scalar("lr", 1e-3), step = g->add_scalar("step", 3);
  Scalar one(1.0);
  auto bias = [&](double beta) {
    Scalar power = Scalar(0.0);
    power.expr = g->env->make(SymOp::kNPow, g->env->number(beta), step.expr);
    power.d = (*g->env)[power.expr].d;
    return scalar_op(SymOp::kNSub, one, power);
  };
  Adam adam;
  adam.decay = scalar_op(SymOp::kNSub, one, scalar_op(SymOp::kNMul, lr, Scalar(0.01)));
  adam.step_size = scalar_op(SymOp::kNSub, Scalar(0.0), scalar_op(SymOp::kNDiv, lr, bias(0.9)));
  adam.correction = bias(0.999);
  GraphRecorder recorder(*g);
  ModeScope mode(&recorder);
  Tensor h = x;
  for (int i = 0; i < 3; i++) {
    h = op1(OpId::linear, {h, params[size_t(2 * i)], params[size_t(2 * i + 1)]});
    if (i < 2) h = op1(OpId::relu, {h});
  }
  Tensor loss = op1(OpId::cross_entropy, {h, y});
  backward({loss}, {}, false, false);
  GradModeScope no_grad(false);
  for (size_t i = 0; i < params.size(); i++) adam.update(params[i], autograd_meta(params[i]).grad, m[i], v[i]);
  g->outputs = {op1(OpId::detach, {loss})};
  for (const Tensor& p : params) p->autograd->grad = Tensor();
  g->renumber();
  return g;
}

std::unique_ptr<Graph> lowered_graph(const Graph& graph) {
  GraphPtr g = functionalise(graph);
  g = decompose(*g);
  g = cse(*g);
  g = dce(*g);
  if (const std::string wrong = verify_sharing(graph, *g); !wrong.empty())
    fail_internal(wrong, "\n", print(graph), print(*g));
  return g;
}

std::unique_ptr<Graph> lowered_if_allowed(const Graph& graph) {
  try {
    return lowered_graph(graph);
  } catch (const Error& e) {
    if (e.kind != ErrorKind::kUser) throw;
    return nullptr;
  }
}

int64_t evaluate(const SymEnv& env, int32_t id, RunSizes sizes) {
  const SymExpr& e = env[id];
  if (e.op == SymOp::kSize && e.a == 0) {
    int64_t v = e.b == 0 ? sizes.rows : sizes.cols;
    return v < 0 ? e.i : v;
  }
  if (e.op == SymOp::kToNum) return evaluate(env, e.a, sizes);
  if (is_number(e.op)) return int64_t(e.d);
  if (e.op <= SymOp::kScalarInput) return e.i;
  int64_t a = evaluate(env, e.a, sizes), b = evaluate(env, e.b, sizes);
  return sym_binary(e.op, SymInt(a), SymInt(b)).hint;
}

bool guards_hold(const SymEnv& env, RunSizes sizes) {
  for (const SymGuard& g : env.guards()) {
    if (g.cmp == SymCmp::kWhole) continue;
    int64_t a = evaluate(env, g.a, sizes), b = evaluate(env, g.b, sizes);
    if (compare_int(g.cmp, a, b) != g.outcome) return false;
  }
  return true;
}

std::vector<Tensor> real_inputs(const Graph& graph, uint32_t seed, RunSizes run) {
  std::mt19937 random(seed);
  std::vector<Tensor> out;
  auto hints = [&](const Sizes& v) {
    Sizes r;
    for (SymInt s : v) r.push_back(s.expr ? evaluate(*graph.env, s.expr, run) : s.hint);
    return r;
  };
  for (const GraphInput& in : graph.inputs) {
    if (in.constant) continue;
    Tensor t = make_tensor(hints(in.value->sizes), hints(in.value->strides), in.value->dtype);
    size_t bytes = t->storage->nbytes;
    auto* data = static_cast<char*>(t->storage->data);
    std::memset(data, 0, bytes);
    for (size_t i = 0; i * size_of(t->dtype) < bytes; i++) {
      double f = double(int(random() % 2001) - 1000) / 257;
      switch (t->dtype) {
        case DType::kFloat32: reinterpret_cast<float*>(data)[i] = float(f); break;
        case DType::kFloat64: reinterpret_cast<double*>(data)[i] = f; break;
        case DType::kInt64: reinterpret_cast<int64_t*>(data)[i] = int64_t(random() % 3); break;
        case DType::kInt32: reinterpret_cast<int32_t*>(data)[i] = int32_t(random() % 7) - 2; break;
        case DType::kUInt8: data[i] = char(random() % 256); break;
        default: data[i] = char(random() % 2); break;
      }
    }
    // Second moments are not negative.
    if (in.name == "v") {
      for (size_t i = 0; i * 4 < bytes; i++)
        reinterpret_cast<float*>(data)[i] = std::abs(reinterpret_cast<float*>(data)[i]);
    }
    out.push_back(t);
  }
  return out;
}

std::vector<double> real_scalars(const Graph& graph) {
  std::vector<double> out;
  for (const ScalarInput& s : graph.scalars) out.push_back(s.hint);
  return out;
}

namespace {

// Signs and payloads of NaNs are nobody's: all are written alike.
void add_element(std::string& out, const char* data, DType dtype) {
  const bool nan = is_float(dtype) && std::isnan(load_element(data, dtype).to_double());
  nan ? out.append(size_of(dtype), '\xff') : out.append(data, size_of(dtype));
}

}  // namespace

std::string bytes_of(const Tensor& t) {
  std::string out;
  size_t size = size_of(t->dtype);
  std::vector<int64_t> at(t->sizes.size(), 0);
  if (t->numel().hint == 0) return out;
  const char* data = static_cast<const char*>(t->data());
  while (true) {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); d++) offset += at[d] * t->strides[d].hint;
    add_element(out, data + offset * int64_t(size), t->dtype);
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == t->sizes[d - 1].hint) at[--d] = 0;
    if (d == 0) return out;
  }
}

SeenRun run_graph(const Graph& lowered, Witness how, const std::string& isa, uint32_t seed, RunSizes sizes) {
  SeenRun r;
  std::vector<Tensor> inputs = real_inputs(lowered, seed, sizes);
  std::vector<double> scalars = real_scalars(lowered);
  std::string saved = settings().isa;
  settings().isa = isa;
  default_generator().seed = 7;
  default_generator().next_call = 0;
  std::vector<Value> outputs;
  try {
    if (how == Witness::kEager) {
      outputs = interpret(lowered, inputs, scalars);
    } else {
      outputs =
          Executable::build(schedule(lowered, {how == Witness::kFused}), constants_of(lowered))->run(inputs, scalars);
    }
  } catch (const Error& e) {
    settings().isa = saved;
    // Eager asks its meta rules again at these sizes.
    bool refused = e.kind == ErrorKind::kUser && how == Witness::kEager;
    if (e.kind != ErrorKind::kData && !refused) throw;
    r.error = refused ? "refused" : e.what();
    return r;
  }
  settings().isa = saved;
  for (const Value& v : outputs) {
    if (v.is<Tensor>()) r.values.push_back(bytes_of(v.tensor()));
  }
  for (const Tensor& t : inputs) r.values.push_back(bytes_of(t));
  return r;
}

std::string describe(const SeenRun& a, const SeenRun& b) {
  if (a.error != b.error) return "errors '" + a.error + "' and '" + b.error + "'";
  if (a.values.size() != b.values.size()) return "other numbers of results";
  std::string text;
  for (size_t i = 0; i < a.values.size(); i++) {
    if (a.values[i] == b.values[i]) continue;
    size_t at = 0;
    while (at < a.values[i].size() && at < b.values[i].size() && a.values[i][at] == b.values[i][at]) at++;
    text +=
        str("result ", i, " (", a.values[i].size(), " and ", b.values[i].size(), " bytes) differs at byte ", at, "; ");
  }
  return text;
}

}  // namespace lutra
