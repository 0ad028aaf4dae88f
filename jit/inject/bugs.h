// The bugs. Each one spoils a graph or a plan in place. They return false if there is nothing to spoil.
#pragma once

namespace lutra {

struct Graph;
struct Plan;

bool wrong_relu(Graph*, Plan* plan);
bool drop_store(Graph*, Plan* plan);
bool skip_last(Graph*, Plan* plan);
bool wrong_stride(Graph*, Plan* plan);
bool wrong_broadcast(Graph*, Plan* plan);
bool reuse_live_memory(Graph*, Plan* plan);
bool fail_at_exp(Graph* graph, Plan*);
bool ignore_attribute(Graph* graph, Plan*);
bool drop_write(Graph* graph, Plan*);
bool wrong_operand(Graph* graph, Plan*);

}  // namespace lutra
