// Tests writing and reading repros, the files that the reader refuses, and the result of the minifier.
#include <catch2/catch.hpp>

#include "jit/inject/inject.h"
#include "jit/repro/compare.h"
#include "jit/repro/repro.h"
#include "ops/core/digest.h"
#include "tests/eager/values.h"
#include "tests/message.h"

namespace lutra {
namespace {

struct Bugs {
  explicit Bugs(const char* names) { switch_on_bugs(names); }
  ~Bugs() { switch_on_bugs(""); }
};

// Two views of one piece of memory, a constant and a number.
const char kGraph[] = R"(graph {
  scalar 'k' = 2.0
  %0 = input 'x' : f32[4, 6] strides [6, 1]
  %1 = input 'x:t()' : f32[6, 4] strides [1, 6] aliases %0
  %2 = constant 'c' : f32[6] strides [1]
  %3 = mul(%0, scalar(0)) : f32[4, 6] strides [6, 1]
  %4 = add(%3, %2, 1.0) : f32[4, 6] strides [6, 1]
  %5 = relu(%4) : f32[4, 6] strides [6, 1]
  %6 = exp(%1) : f32[6, 4] strides [1, 6]
  %7 = sum(%5, {1}, false, None) : f32[4] strides [1]
  return %7, %6
}
)";

Repro example() {
  Repro r;
  r.kind = "differs", r.about = "f.lua:3", r.what = "result 0\ndiffers", r.device = "cpu", r.isa = "avx2";
  r.without = {"cse", "dce"};
  r.guards = "  r0 = Arg 0\n  Tensor r0 0\n";
  r.graph = kGraph;
  const Tensor x = tensor_of({4, 6}, DType::kFloat32, 1);
  r.inputs = {x, alias(x, {6, 4}, {1, 6}, 0), tensor_of({6}, DType::kFloat32, 2)};
  r.scalars = {-0.1};
  r.seed = ~uint64_t{0}, r.next_call = 7;
  return r;
}

// Returns the changed file with a checksum that fits, as an attacker would write it.
std::string signed_again(std::string bytes) {
  const size_t at = bytes.find('\n', bytes.find("checksum")) + 1;
  char sum[40];
  std::snprintf(sum, sizeof sum, "checksum %016llx\n", static_cast<unsigned long long>(checksum(bytes.substr(at))));
  return bytes.replace(bytes.find("checksum"), at - bytes.find("checksum"), sum);
}

std::string changed(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  REQUIRE(at != std::string::npos);
  return signed_again(bytes.replace(at, from.size(), to));
}

}  // namespace

TEST_CASE("repro: written, read and written again", "[repro]") {
  const Repro r = example();
  const std::string bytes = write_repro(r);
  const Repro back = read_repro(bytes);
  CHECK(write_repro(back) == bytes);
  CHECK(back.what == "result 0 differs");
  CHECK(back.graph == r.graph);
  CHECK(back.without == r.without);
  CHECK(back.seed == r.seed);
  CHECK(back.scalars == r.scalars);
  REQUIRE(back.inputs.size() == 3);
  CHECK(back.inputs[0]->storage == back.inputs[1]->storage);
  CHECK_FALSE(back.inputs[0]->storage == back.inputs[2]->storage);
  for (size_t i = 0; i < 3; i++) CHECK(same_bits(back.inputs[i], r.inputs[i]));
  CHECK(replay(back).kind.empty());
}

TEST_CASE("repro: what is damaged or lies is refused", "[repro]") {
  const std::string bytes = write_repro(example());
  for (size_t i = 0; i < bytes.size(); i++) {
    INFO(i);
    CHECK_THROWS_AS(read_repro(bytes.substr(0, i)), Error);
    std::string other = bytes;
    other[i] = char(other[i] ^ 1);
    CHECK_THROWS_AS(read_repro(other), Error);
  }
  const auto told = [&](const char* from, const char* to) {
    return message([&] { read_repro(changed(bytes, from, to)); });
  };
  CHECK(told("storage 96", "storage 92") == "repro: the file is damaged: an input lies outside of its memory");
  CHECK(told("storage 96", "storage 9999999999") == "repro: the file is damaged: it ends early");
  CHECK(told("{4,6} {6,1}", "{4,-6} {6,1}") == "repro: the file is damaged: an input has no such size");
  CHECK(told("{4,6} {6,1}", "{4,6} {6000000000000,1}") == "repro: the file is damaged: an input has no such size");
  CHECK(told("input 0", "input 9") == "repro: the file is damaged: an input has no memory");
  CHECK(told("float32", "float99") == "repro: the file is damaged: there is no dtype 'float99'");
  CHECK(told("graph 12", "graph 13") == "repro: the file is damaged: it ends early");
  CHECK(told("kind", "kinn") == "repro: the file is damaged: it has a line 'kinn'");
  CHECK(told("scalar ", "scalar x") == "repro: the file is damaged: a scalar is 'x-0x1.999999999999ap-4'");
  // Whole files whose parts do not fit each other.
  Repro r = example();
  r.inputs.pop_back();
  CHECK(message([&] { replay(r); }) == "repro: the file has 2 inputs, its graph 3");
  r.inputs.push_back(tensor_of({6}, DType::kInt64, 2));
  CHECK(message([&] { replay(r); }) == "repro: input 2 is i64[6] in the file, f32[6] in its graph");
}

TEST_CASE("repro: unknown elements are zeros", "[repro]") {
  Repro r = example();
  r.inputs.clear(), r.scalars.clear();
  CHECK(replay(read_repro(write_repro(r))).kind.empty());
}

TEST_CASE("repro: the difference names result, op, element and both values", "[repro]") {
  const Bugs bugs("relu");
  Repro r = example();
  r.scalars = {-3};
  const Replay seen = replay(r);
  CHECK(seen.kind == "differs");
  CHECK(seen.what == "result 0 (sum): element {1} is 42.25 compiled, 13.25 in eager");
}

TEST_CASE("minify: one op is left, with small inputs", "[repro]") {
  const Bugs bugs("relu");
  const Repro small = minify(example());
  CHECK(ops_of(small) == 1);
  CHECK(small.graph.find("relu") != std::string::npos);
  CHECK(replay(read_repro(write_repro(small))).kind == "differs");
  CHECK(write_repro(small).size() < write_repro(example()).size());
}

TEST_CASE("minify: writes, random ops and symbols", "[repro]") {
  const Bugs bugs("relu");
  Repro r;
  r.kind = "differs", r.device = "cpu";
  r.graph = R"(graph {
  sym size(0, 0) = 3
  %0 = input 'x' : f32[size(0, 0), 4] strides [4, 1]
  %1 = rand({size(0, 0), 4}, None, None) : f32[size(0, 0), 4] strides [4, 1] rng 0
  mul_(%0, %1)
  %2 = sub(%0, %1, 1.0) : f32[size(0, 0), 4] strides [4, 1]
  relu_(%0)
  %3 = relu(%2) : f32[size(0, 0), 4] strides [4, 1]
  return %3 rng 1
}
)";
  r.inputs = {tensor_of({5, 4}, DType::kFloat32, 3)};
  r.seed = 5;
  std::string text;
  try {
    text = print(*parse_graph(r.graph));
  } catch (const Error& e) {
    FAIL(e.what());
  }
  REQUIRE(replay(r).kind == "differs");
  const Repro small = minify(r);
  CHECK(ops_of(small) == 1);
  CHECK(replay(small).kind == "differs");
}

TEST_CASE("minify: a repro that does not fail is refused", "[repro]") {
  CHECK(message([] { minify(example()); }) == "minify: compiled code and eager agree on this repro");
}

TEST_CASE("copies share what the originals share", "[repro]") {
  const Tensor x = tensor_of({4, 6}, DType::kFloat32, 1);
  Copies copies;
  const std::vector<Tensor> made = copies.of({x, alias(x, {6}, {1}, 6)});
  CHECK(made[0]->storage == made[1]->storage);
  CHECK_FALSE(made[0]->storage == x->storage);
  CHECK(same_bits(made[1], alias(x, {6}, {1}, 6)));
}

}  // namespace lutra
