// Functional, decomposed graph in; plan out: lowering, fusion, memory plan.
#pragma once
#include "jit/device/machine.h"
#include "jit/graph/graph.h"
#include "jit/schedule/plan.h"

namespace lutra {

struct ScheduleOptions {
  bool fuse = true;
  const Machine* machine = nullptr;  // that it is made for; null: the stated one of the kind of device
  std::string* decisions = nullptr;  // where what was weighed is told, a line each
};

// Of what the graph makes.
Device device_of(const Graph& graph);

Plan schedule(const Graph& graph, const ScheduleOptions& options = {});

}  // namespace lutra
