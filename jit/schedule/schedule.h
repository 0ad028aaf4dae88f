// Makes a plan from a functional, decomposed graph and its lowered form: chooses fusion and the memory plan.
#pragma once
#include "jit/device/machine.h"
#include "jit/graph/graph.h"
#include "jit/lower/lower.h"
#include "jit/schedule/plan.h"

namespace lutra {

struct ScheduleOptions {
  bool fuse = true;
  const Machine* machine = nullptr;  // the machine that the plan is made for; null: the device kind's stated one
  std::string* decisions = nullptr;  // receives a line for each decision
};

// lowered: what the graph is lowered to.
Plan schedule(const Graph& graph, LoweredGraph lowered, const ScheduleOptions& options = {});
Plan schedule(const Graph& graph, const ScheduleOptions& options = {});

}  // namespace lutra
