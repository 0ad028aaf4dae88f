// Tests random graphs on a GPU. Compiled, also when replayed from a recording, they give eager's bits. Each eager op
// gives the same as on the CPU with the same inputs.
//
// Tolerances: integers, booleans and pointwise ops are equal bit for bit. Other elements may differ from the wide
// interpreter's result (float64) by `tolerance`, relative to the largest element of result and inputs, or by four times
// the CPU's own difference. LUTRA_TEST_SEED is one seed or a range, and prints a summary.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "jit/compile.h"
#include "jit/device/backend.h"
#include "ops/core/half.h"
#include "ops/core/settings.h"
#include "ops/cuda/context.h"
#include "tests/eager/values.h"
#include "tests/schedule/graphs.h"
#include "tests/seeds.h"

namespace lutra {
namespace {

const Device gpu{DeviceType::kCUDA, 0};

// The same bytes and strides elsewhere.
Tensor moved(const Tensor& t, Device to) {
  Sizes sizes = t->sizes, strides = t->strides;
  int64_t last = -1;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d].hint == 0) return make_tensor(sizes, strides, t->dtype, to);
    last = std::max<int64_t>(last, 0) + (sizes[d].hint - 1) * strides[d].hint;
  }
  const size_t bytes = size_t(std::max<int64_t>(last, 0) + 1) * size_of(t->dtype);
  const Tensor out = make_tensor(sizes, strides, t->dtype, to);
  LUTRA_CHECK(out->storage->nbytes >= bytes, "strides ask for ", bytes, " bytes");
  copy_bytes(out->data(), to, t->data(), t->device(), bytes);
  return out;
}

double element(const Tensor& t, int64_t i) {
  if (t->dtype == DType::kFloat16 || t->dtype == DType::kBFloat16) {
    uint16_t bits;
    std::memcpy(&bits, address(t, i), 2);
    return double(t->dtype == DType::kFloat16 ? half_to_float(bits) : bfloat16_to_float(bits));
  }
  return get(t, i);
}

double tolerance(DType type) {
  switch (type) {
    case DType::kFloat64: return 1e-13;
    case DType::kFloat16: return 0x1p-10;
    case DType::kBFloat16: return 0x1p-7;
    default: return 1e-5;
  }
}

bool same_element(const Tensor& a, const Tensor& b, int64_t i) {
  if (std::memcmp(address(a, i), address(b, i), size_of(a->dtype)) == 0) return true;
  return is_float(a->dtype) && std::isnan(element(a, i)) && std::isnan(element(b, i));
}

bool same(const Tensor& a, const Tensor& b) {
  if (a->dtype != b->dtype || a->dim() != b->dim() || count(a) != count(b)) return false;
  for (int64_t i = 0; i < count(a); i++) {
    if (!same_element(a, b, i)) return false;
  }
  return true;
}

double largest(const Tensor& t) {
  double most = 0;
  if (!is_float(t->dtype)) return 0;
  for (int64_t i = 0; i < count(t); i++) {
    const double v = std::fabs(element(t, i));
    if (std::isfinite(v)) most = std::max(most, v);
  }
  return most;
}

// How far a is from b where both are finite; infinite where only one is.
double distance(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t i = 0; i < count(a); i++) {
    const double x = element(a, i), y = element(b, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    most = std::max(most, std::isfinite(x) && std::isfinite(y) ? std::fabs(x - y) : INFINITY);
  }
  return most;
}

struct Summary {
  int64_t graphs = 0, raised = 0, ops = 0, equal = 0;
  std::map<std::string, double> worst;  // op -> distance relative to what is allowed
};

// Ops on the GPU, each asked of the CPU, too.
class Judge : public Mode {
 public:
  explicit Judge(Summary& summary) : summary_(summary) {}

  Results call(OpId op, Args& args) override {
    const Args host = on_host(args);
    const uint64_t next = default_generator().next_call;
    std::string problem, expected;
    Results here, want;
    attempt([&] { want = call_op(op, host); }, expected);
    const uint64_t after = default_generator().next_call;
    default_generator().next_call = next;
    const Error* raised = attempt(
        [&] {
          here = call_op(op, args);
          backend_of(gpu).wait(gpu);
        },
        problem);
    INFO(info(op).name << ": " << problem << " on the GPU, " << expected << " on the CPU");
    // A refusal may be worded by what only one of them does; of several wrong indices each may meet another one first.
    CHECK(problem.empty() == expected.empty());
    if (raised) throw *raised;
    if (expected.empty()) {
      CHECK(default_generator().next_call == after);
      for (size_t i = 0; i < here.size(); i++) {
        if (here[i]) compare(op, host, i, moved(here[i], {}), want[i], next);
      }
      default_generator().next_call = after;
    }
    return here;
  }
  // Functional graphs write at their end only; both ways are one op.
  Tensor call_inplace(OpId op, Args& args) override { return lutra::call_inplace(op, args); }

 private:
  template <class F>
  const Error* attempt(F f, std::string& text) {
    try {
      f();
    } catch (const Error& e) {
      if (e.kind != ErrorKind::kData && e.kind != ErrorKind::kUser) throw;
      text = e.what();
      error_ = std::make_unique<Error>(e);
      return error_.get();
    }
    return nullptr;
  }

  static Args on_host(const Args& args) {
    Args out;
    for (const Value& v : args) {
      if (v.is<Tensor>() && v.as<Tensor>()) {
        out.push_back(moved(v.as<Tensor>(), {}));
      } else if (v.is<std::vector<Tensor>>()) {
        std::vector<Tensor> list;
        for (const Tensor& t : v.as<std::vector<Tensor>>()) list.push_back(moved(t, {}));
        out.push_back(list);
      } else {
        out.push_back(v.is<Device>() ? Value(Device{}) : v);
      }
    }
    return out;
  }

  void compare(OpId op, const Args& host, size_t i, const Tensor& here, const Tensor& want, uint64_t next) {
    summary_.ops++;
    REQUIRE(here->dtype == want->dtype);
    REQUIRE(count(here) == count(want));
    if (same(here, want)) {
      summary_.equal++;
      return;
    }
    INFO(describe_difference(here, want));
    if (!is_float(here->dtype) || info(op).has(kPointwise)) {
      FAIL_CHECK("differs from the CPU's, bit for bit");
      return;
    }
    const std::string isa = settings().isa;
    settings().isa = "wide";
    default_generator().next_call = next;
    const Tensor wide = call_op(op, host)[i];
    settings().isa = isa;
    double scale = largest(wide);
    for (const Value& v : host) {
      if (v.is<Tensor>() && v.as<Tensor>()) scale = std::max(scale, largest(v.as<Tensor>()));
    }
    const double allowed = std::max(tolerance(here->dtype) * scale, 4 * distance(want, wide));
    const double far = distance(here, wide);
    double& worst = summary_.worst[info(op).name];
    worst = std::max(worst, far / (tolerance(here->dtype) * scale));
    INFO("distance " << far << " of " << allowed << " allowed; the CPU's " << distance(want, wide));
    CHECK(far <= allowed);
  }

  static std::string describe_difference(const Tensor& a, const Tensor& b) {
    for (int64_t i = 0; i < count(a); i++) {
      if (!same_element(a, b, i)) {
        return str(describe(a), " element ", i, ": ", element(a, i), " on the GPU, ", element(b, i), " on the CPU");
      }
    }
    return "";
  }

  Summary& summary_;
  std::unique_ptr<Error> error_;
};

struct Outcome {
  std::vector<Tensor> values;  // outputs, then the inputs as they were left; on the host
  std::string error;
  bool refused = false;  // by a meta rule, which eager asks again at these sizes
  uint64_t next_call = 0;
};

template <class F>
Outcome outcome(const Graph& graph, uint32_t seed, F run) {
  Outcome out;
  std::vector<Tensor> inputs;
  for (const Tensor& t : real_inputs(graph, seed)) inputs.push_back(moved(t, gpu));
  default_generator().seed = 7;
  default_generator().next_call = 0;
  try {
    const std::vector<Value> results = run(inputs, real_scalars(graph));
    backend_of(gpu).wait(gpu);
    for (const Value& v : results) {
      if (v.is<Tensor>()) out.values.push_back(moved(v.tensor(), {}));
    }
  } catch (const Error& e) {
    if (e.kind != ErrorKind::kData && e.kind != ErrorKind::kUser) throw;
    out.error = e.what();
    out.refused = e.kind == ErrorKind::kUser;
    return out;
  }
  for (const Tensor& t : inputs) out.values.push_back(moved(t, {}));
  out.next_call = default_generator().next_call;
  return out;
}

void check_equal(const Outcome& eager, const Outcome& compiled) {
  CHECK(compiled.error.empty() == eager.error.empty());
  CHECK(compiled.values.size() == eager.values.size());
  if (!eager.error.empty() || compiled.values.size() != eager.values.size()) return;
  CHECK(compiled.next_call == eager.next_call);
  for (size_t i = 0; i < eager.values.size(); i++) {
    INFO("result " << i);
    CHECK(same(eager.values[i], compiled.values[i]));
  }
}

void check_graph(uint32_t seed, Summary& summary) {
  auto captured = random_graph(seed, gpu);
  const auto graph = lowered_if_allowed(*captured);
  if (!graph) return;
  INFO(print(*graph));
  Judge judge(summary);
  const Outcome eager = outcome(*graph, seed, [&](const auto& inputs, const auto& scalars) {
    ModeScope mode(&judge);
    return interpret(*graph, inputs, scalars);
  });
  summary.graphs++;
  summary.raised += !eager.error.empty();
  if (eager.refused) return;
  // The whole road: all passes, then the scheduler.
  std::optional<Compiled> compiled;
  for (int run = 1; run <= 3; run++) {
    INFO("compiled, run " << run << " (from the second on a recording)");
    check_equal(eager, outcome(*graph, seed, [&](const auto& inputs, const auto& scalars) {
                  if (!compiled) compiled = compile_graph(random_graph(seed, gpu));
                  return compiled->run(inputs, scalars);
                }));
  }
}

}  // namespace

TEST_CASE("random graphs on a GPU: compiled is eager bit for bit, each op is the CPU's", "[gpu]") {
  if (!cuda::is_available()) {
    WARN("skipped: " << cuda::problem());
    return;
  }
  const auto [first, last] = seeds(20);
  Summary summary;
  for (uint32_t seed = uint32_t(first); seed <= last; seed++) {
    CAPTURE(seed);
    check_graph(seed, summary);
  }
  CHECK(summary.ops > int64_t(summary.graphs));
  if (!std::getenv("LUTRA_TEST_SEED")) return;
  printf("seeds %llu-%llu: %lld graphs (%lld raised), %lld results of ops, %lld equal to the CPU's bit for bit\n",
         (unsigned long long)first, (unsigned long long)last, (long long)summary.graphs, (long long)summary.raised,
         (long long)summary.ops, (long long)summary.equal);
  for (const auto& [op, d] : summary.worst) printf("  %s: %.3g of its tolerance at most\n", op.c_str(), d);
}

}  // namespace lutra
