// Tests that verify finds guard programs with invalid operands, and names the step.
#include <catch2/catch.hpp>

#include "tests/guard/step.h"

namespace lutra {
namespace {

// A program of one tensor, one number, a list of keys and a group, of whose steps the last is `last`.
std::string verdict(const GuardStep& last, int registers = 2) {
  GuardProgram p;
  p.steps = {step(GuardOp::kArgLoad), step(GuardOp::kFieldLoad, 0, -1, 1), step(GuardOp::kTensorCheck, 1), last};
  p.tensors.resize(1);
  p.scalar_sources.resize(1);
  p.keys.resize(1);
  p.groups = {{1, {{0, 0}, {1, 0}}}, {1, {{0, 0}, {5, 0}}}, {9, {{0, 0}}}};
  p.written = {3};
  p.registers = registers;
  return verify(p);
}

}  // namespace

TEST_CASE("a guard program that names what exists is right", "[guard]") {
  for (const GuardStep& s : {step(GuardOp::kNilCheck, 1), step(GuardOp::kNumberCheck, 0), step(GuardOp::kKeysCheck, 0),
                             step(GuardOp::kDistinctCheck), step(GuardOp::kGradNilCheck, 0),
                             step(GuardOp::kSameCheck, 0, 1), step(GuardOp::kGradModeCheck, -1, -1, 1)}) {
    CHECK(verdict(s) == "");
  }
  CHECK(verdict(step(GuardOp::kMetatableLoad, 1), 3) == "");
}

TEST_CASE("a guard program that lies is found", "[guard]") {
  CHECK(verdict(step(GuardOp::kNilCheck, 2)) == "step 3: there is no register 2");
  CHECK(verdict(step(GuardOp::kSameCheck, 0, 7)) == "step 3: there is no register 7");
  CHECK(verdict(step(GuardOp::kFieldByLoad, 0, 2)) == "step 3: there is no register 2");
  CHECK(verdict(step(GuardOp::kTensorCheck, 0, -1, 1)) == "step 3: there is no tensor input 1");
  CHECK(verdict(step(GuardOp::kGradLoad, 0, -1, 1)) == "step 3: there is no tensor input 1");
  CHECK(verdict(step(GuardOp::kTensorCheck, 0)) == "step 3: tensor input 0 is loaded twice");
  CHECK(verdict(step(GuardOp::kGradLoad, 0)) == "step 3: tensor input 0 is loaded twice");
  CHECK(verdict(step(GuardOp::kGradNilCheck, 4)) == "step 3: there is no tensor input 4");
  CHECK(verdict(step(GuardOp::kNumberCheck, 0, -1, 1)) == "step 3: there is no number 1");
  CHECK(verdict(step(GuardOp::kKeysCheck, 0, -1, -1)) == "step 3: there is no list of keys -1");
  CHECK(verdict(step(GuardOp::kDistinctCheck, -1, -1, 3)) == "step 3: there is no group 3");
  CHECK(verdict(step(GuardOp::kDistinctCheck, -1, -1, 1)) == "step 3: there is no register 5");
  CHECK(verdict(step(GuardOp::kDistinctCheck, -1, -1, 2)) == "step 3: there is no writer 9");
  CHECK(verdict(step(GuardOp::kDistinctTensorsCheck)) == "step 3: there is no tensor input 1");
  CHECK(verdict(step(GuardOp::kOverlapCheck)) == "step 3: there is no tensor input 3");
  CHECK(verdict(step(GuardOp::kNilCheck, 1), 3) == "2 registers are written, not 3");
}

}  // namespace lutra
