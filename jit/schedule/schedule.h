// Functional, decomposed graph and what it is lowered to in; plan out: fusion, memory plan.
#pragma once
#include "jit/device/machine.h"
#include "jit/graph/graph.h"
#include "jit/lower/lower.h"
#include "jit/schedule/plan.h"

namespace lutra {

struct ScheduleOptions {
  bool fuse = true;
  const Machine* machine = nullptr;  // that it is made for; null: the stated one of the kind of device
  std::string* decisions = nullptr;  // where what was weighed is told, a line each
};

// lowered: what the graph is lowered to.
Plan schedule(const Graph& graph, LoweredGraph lowered, const ScheduleOptions& options = {});
Plan schedule(const Graph& graph, const ScheduleOptions& options = {});

}  // namespace lutra
