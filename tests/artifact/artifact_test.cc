// Tests that artifacts are read as they were written and run alike, and that inconsistent ones are refused.
#include <catch2/catch.hpp>

#include "jit/artifact/artifact.h"
#include "jit/compile.h"
#include "jit/runtime/config.h"
#include "jit/schedule/schedule.h"
#include "ops/defs/call.h"
#include "ops/defs/element.h"
#include "tests/golden.h"
#include "tests/runtime/plans.h"
#include "tests/schedule/graphs.h"
#include "tests/seeds.h"

namespace lutra {
namespace {

const std::string kTarget = "a machine";

// Runs the executable. Returns its results and the inputs after the run, or its error.
SeenRun run(Executable& e, const Graph& graph, uint32_t seed) {
  SeenRun r;
  default_generator().seed = 7;
  default_generator().next_call = 0;
  const std::vector<Tensor> inputs = real_inputs(graph, seed);
  std::vector<Value> outputs;
  try {
    outputs = e.run(inputs, real_scalars(graph));
  } catch (const Error& error) {
    if (error.kind != ErrorKind::kData) throw;
    r.error = error.what();
    return r;
  }
  for (const Value& v : outputs) {
    if (v.is<Tensor>()) r.values.push_back(bytes_of(v.tensor()));
  }
  for (const Tensor& t : inputs) r.values.push_back(bytes_of(t));
  return r;
}

std::string bytes_of_artifact(const Executable& e, const Graph& graph) {
  return write_artifact(e.plan(), e.codes(), describe_constants(e.constants(), constants_of(graph)), kTarget);
}

std::string refusal(const std::string& bytes) {
  try {
    read_artifact(bytes, kTarget);
  } catch (const Error& e) {
    CHECK(e.kind == ErrorKind::kUser);
    return e.what();
  }
  return "";
}

std::string refusal(HandPlan p) {
  close(p, *p.env);
  Codes codes;
  codes.of_launch.assign(p.launches.size(), -1);
  return refusal(write_artifact(p, codes, {}, kTarget));
}

}  // namespace

TEST_CASE("artifacts of random graphs are read as they were written, and run alike", "[runtime]") {
  const auto [first, last] = seeds(300);
  size_t images = 0, ran = 0;
  for (uint64_t seed = first; seed <= last; seed++) {
    INFO("seed " << seed);
    const auto graph = lowered_if_allowed(*random_graph(uint32_t(seed)));
    if (!graph) continue;
    const auto made = Executable::build(schedule(*graph), constants_of(*graph));
    const std::string bytes = bytes_of_artifact(*made, *graph);
    Artifact read = read_artifact(bytes, kTarget);
    REQUIRE(write_artifact(read.plan, read.codes, read.constants, kTarget) == bytes);
    REQUIRE(print(read.plan) == print(made->plan()));
    const std::string text = print_artifact(read.plan, read.constants);
    const Artifact parsed = parse_artifact(text);
    REQUIRE(print_artifact(parsed.plan, parsed.constants) == text);
    REQUIRE(print(parsed.plan) == print(made->plan()));
    images += read.codes.images.size();
    const auto linked = Executable::link(std::move(read), constants_of(*graph));
    const SeenRun a = run(*made, *graph, uint32_t(seed)), b = run(*linked, *graph, uint32_t(seed));
    INFO(describe(a, b));
    REQUIRE(a == b);
    ran++;
  }
  CHECK(ran > (last - first) / 2);
  if (current_isa() != "interp") CHECK(images > ran / 2);
}

TEST_CASE("an artifact has the functions of its plan, which run as eager's", "[runtime]") {
  const std::string file = GENERATE(as<std::string>(), "functions", "symbolic_functions");
  const auto captured = parse_graph(read_text("tests/graph/" + file + ".graph"));
  std::vector<Tensor> inputs = real_inputs(*captured, 5);
  store_element(inputs[1]->data(), DType::kFloat32, Scalar(3.0));  // how often the loop runs
  const std::vector<double> scalars = real_scalars(*captured);
  std::vector<std::string> wanted;
  for (const Value& v : interpret(*captured, inputs, scalars)) wanted.push_back(bytes_of(v.tensor()));
  const Compiled compiled = compile_graph(parse_graph(print(*captured)));
  const std::string bytes = bytes_of_artifact(*compiled.executable, *captured);
  Artifact read = read_artifact(bytes, kTarget);
  CHECK(read.plan.functions.size() == 3);
  const std::string loops = loops_text(read.plan);  // those of functions, too
  size_t kernels = 0;
  for (size_t at = 0; (at = loops.find("kernel ", at)) != std::string::npos; at++) kernels++;
  CHECK(kernels == compiled.kernels);
  CHECK(write_artifact(read.plan, read.codes, read.constants, kTarget) == bytes);
  const std::string text = print_artifact(read.plan, read.constants);
  CHECK(print_artifact(parse_artifact(text).plan, read.constants) == text);
  const auto linked = Executable::link(std::move(read), {});
  for (Executable* e : {compiled.executable.get(), linked.get()}) {
    const std::vector<Value> out = e->run(inputs, scalars);
    REQUIRE(out.size() == wanted.size());
    for (size_t i = 0; i < out.size(); i++) CHECK(bytes_of(out[i].tensor()) == wanted[i]);
  }
  for (size_t at = 0; at < bytes.size(); at += 7) {
    std::string changed = bytes;
    changed[at] = char(changed[at] ^ 4);
    refusal(changed);
  }
}

TEST_CASE("a function has the sizes and numbers of each run of its caller", "[runtime]") {
  const std::string text = read_text("tests/graph/symbolic_functions.graph");
  const Compiled compiled = compile_graph(parse_graph(text));
  for (const char* const rows : {"3", "2", "8"}) {
    for (const char* const steps : {"21", "2", "40"}) {
      INFO(rows << ", " << steps);
      std::string other = text;
      for (const auto& [was, now] : {std::pair("size(0, 0) = 3 in", rows), std::pair("size(0, 1) = 21 in", steps)}) {
        const std::string leaf(was, strchr(was, '=') - was);
        other.replace(other.find(was), strlen(was), leaf + "= " + now + " in");
      }
      const auto graph = parse_graph(other);
      const std::vector<Tensor> inputs = real_inputs(*graph, 5);
      for (const double number : {3.5, 0.5, 7.25}) {
        const std::vector<Value> wanted = interpret(*graph, inputs, {number});
        const std::vector<Value> out = compiled.executable->run(inputs, {number});
        for (size_t i = 0; i < out.size(); i++) CHECK(bytes_of(out[i].tensor()) == bytes_of(wanted[i].tensor()));
      }
    }
  }
}

TEST_CASE("an artifact that was changed is refused, or is one all the same", "[runtime]") {
  const auto graph = lowered_graph(*random_graph(3));
  const auto made = Executable::build(schedule(*graph), constants_of(*graph));
  const std::string bytes = write_artifact(made->plan(), {{}, std::vector<int32_t>(made->plan().launches.size(), -1)},
                                           describe_constants(made->constants(), {}), kTarget);
  size_t refused = 0;
  for (size_t at = 0; at < bytes.size(); at++) {
    CHECK(refusal(bytes.substr(0, at)) != "");
    for (const int flip : {1, 4, 0x80}) {
      std::string changed = bytes;
      changed[at] = char(changed[at] ^ flip);
      refused += !refusal(changed).empty();
    }
  }
  CHECK(refused > bytes.size());
  CHECK(refusal(bytes + "x") == "artifact: something follows its end");
  CHECK(refusal("no artifact") != "");
}

TEST_CASE("a plan that lies is refused by what is wrong", "[runtime]") {
  CHECK(refusal(scale_add_plan()) == "");
  const auto with = [](auto change) {
    HandPlan p = scale_add_plan();
    change(p, std::get<KernelLaunch>(p.launches[0]));
    return refusal(std::move(p));
  };
  using K = KernelLaunch;
  CHECK(with([](HandPlan&, K& k) { k.buffers[1] = 3; }) == "artifact: launch 0: there is no buffer b3");
  CHECK(with([](HandPlan&, K& k) { k.buffers.pop_back(); }) ==
        "artifact: launch 0 of scale_add has other arguments than the kernel");
  CHECK(with([](HandPlan&, K& k) { k.kernel.values = 1; }).find("artifact: kernel scale_add: ") == 0);
  CHECK(with([](HandPlan& p, K&) { p.buffers[1].index = -2; }) == "artifact: buffer b1 has no place -2");
  CHECK(with([](HandPlan& p, K&) { p.outputs[0].view.buffer = -1; }) == "artifact: there is no buffer b-1");
  CHECK(with([](HandPlan& p, K&) { p.mutated.push_back(-7); }) ==
        "artifact: the plan writes to input -7, which it does not have");
}

TEST_CASE("a text of an artifact that lies is refused where it lies", "[runtime]") {
  HandPlan p = scale_add_plan();
  close(p, *p.env);
  const std::string text = print_artifact(p, {});
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    REQUIRE(at != std::string::npos);
    changed.replace(at, from.size(), to);
    try {
      parse_artifact(changed);
    } catch (const Error& e) {
      CHECK(e.kind == ErrorKind::kUser);
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(parse_artifact(text).plan.launches.size() == 1);
  CHECK(refused("lutra artifact 1", "lutra artifact 0") ==
        "artifact: its format is 'lutra artifact 0', this build reads 'lutra artifact 1'");
  CHECK(refused("\"op\": \"size\"", "\"op\": \"sizes\"") == "artifact: plan.exprs[1].op is an unknown name: 'sizes'");
  CHECK(refused("\"kind\": \"input\"", "\"sort\": \"input\"") == "artifact: plan.buffers[0] has an unknown key 'sort'");
  CHECK(refused("\"index\": 0", "\"index\": 1.5") == "artifact: plan.device.index is no whole number");
  CHECK(refused("\"index\": 0", "\"index\": 300") == "artifact: plan.device.index is too large");
  CHECK(refused("%2 = mul.f32", "%2 = mull.f32").find("artifact: plan.launches[0].kernel.kernel is no kernel: ") == 0);
  CHECK(refused("\"kernel\": {", "\"kernels\": {") ==
        "artifact: plan.launches[0] is a launch of an unknown kind: 'kernels'");
  CHECK(refused("\"constants\": 0", "\"constants\": 1") == "artifact: constants of another plan");
  CHECK(refused("\"plan\"", "plan").find("line 3, column 2") != std::string::npos);
}

TEST_CASE("an artifact of another build names it", "[runtime]") {
  const auto graph = lowered_graph(*random_graph(1));
  const auto made = Executable::build(schedule(*graph), constants_of(*graph));
  std::string bytes = bytes_of_artifact(*made, *graph);
  char& digit = bytes[1 + std::string("lutra artifact 2").size() + 1];
  digit = digit == '0' ? '1' : '0';
  CHECK(refusal(bytes).find("artifact: it is of another build of Lutra (") == 0);
}

TEST_CASE("an artifact for another machine names it", "[runtime]") {
  HandPlan p = scale_add_plan();
  close(p, *p.env);
  CHECK(refusal(write_artifact(p, no_codes(p), {}, "an abacus")) ==
        "artifact: its code is for another machine (an abacus; this is a machine)");
}

TEST_CASE("an artifact that is not of the graph is refused", "[runtime]") {
  const auto graph = parse_graph(R"(graph {
  sym size(0, 0) = 8
  scalar 's' = 2.0
  %0 = input 'x' : f32[size(0, 0)] strides [1]
  %1 = constant 'c' : f32[] strides []
  %2 = mul(%0, scalar(0)) : f32[size(0, 0)] strides [1]
  %3 = add(%2, %1, 1.0) : f32[size(0, 0)] strides [1]
  return %3
}
)");
  const auto made = Executable::build(schedule(*graph), constants_of(*graph));
  const auto why = [&](auto change) {
    Artifact a = read_artifact(bytes_of_artifact(*made, *graph), kTarget);
    change(a, a.plan);
    try {
      check_serves(a, *graph);
    } catch (const Error& e) {
      CHECK(e.kind == ErrorKind::kUser);
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string not_of = "artifact: it is of another graph: ";
  const auto change_expr = [](Plan& p, SymOp op, int32_t SymExpr::*side, int32_t to) {
    for (SymExpr& e : p.exprs) {
      if (e.op == op) e.*side = to;
    }
  };
  using A = Artifact;
  CHECK(why([](A&, Plan&) {}) == "");
  CHECK(why([](A&, Plan& p) { p.positions.pop_back(); }) == not_of + "it has other inputs");
  CHECK(why([](A&, Plan& p) { p.positions[1] = 1; }) == not_of + "input 1 has another position");
  CHECK(why([](A&, Plan& p) { p.mutated = {2}; }) == not_of + "it writes input 2");
  CHECK(why([](A& a, Plan&) { a.constants[0].given = 4; }) == not_of + "it reads constant 4");
  CHECK(why([](A&, Plan& p) { p.outputs.clear(); }) == not_of + "it has 0 results");
  CHECK(why([](A&, Plan& p) { p.outputs[0].kind = PlanOutput::kNone; }) == not_of + "result 0 is of another kind");
  CHECK(why([](A&, Plan& p) { p.rng_calls = 3; }) == not_of + "it draws random numbers 3 times");
  CHECK(why([&](A&, Plan& p) { change_expr(p, SymOp::kSize, &SymExpr::b, 1); }) ==
        not_of + "it reads dimension 1 of input 0");
  CHECK(why([&](A&, Plan& p) { change_expr(p, SymOp::kScalarInput, &SymExpr::a, 1); }) == not_of + "it reads number 1");
}

TEST_CASE("a text of an artifact has names that are no UTF-8", "[runtime]") {
  HandPlan p = scale_add_plan();
  std::get<KernelLaunch>(p.launches[0]).file = "caf\xe9.lua";
  close(p, *p.env);
  const std::string text = print_artifact(p, {});
  const Artifact read = parse_artifact(text);
  CHECK(std::get<KernelLaunch>(read.plan.launches[0]).file == "caf\xe9.lua");
  CHECK(print_artifact(read.plan, {}) == text);
}

}  // namespace lutra
