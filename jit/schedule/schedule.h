// Functional, decomposed graph in; plan out: lowering, fusion, memory plan.
#pragma once
#include "jit/graph/graph.h"
#include "jit/schedule/plan.h"

namespace lutra {

struct ScheduleOptions {
  bool fuse = true;
};

Plan schedule(const Graph& graph, const ScheduleOptions& options = {});

}  // namespace lutra
