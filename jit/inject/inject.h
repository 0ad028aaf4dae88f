// Compiler bugs that tests switch on: what a stage of the compiler gave in; the same with a bug in it out.
//
// Invariants:
// 1. A bug is in compiled segments only. Eager ops, which go the same road with one node, stay right: they are the
//    witness.
// 2. A bug computes something else, and reads and writes nothing beyond what the right code may.
// 3. Where no bug is on, a compilation asks one question a stage, and a run none.
#pragma once
#include <string>

#include "jit/graph/graph.h"
#include "jit/schedule/plan.h"

namespace lutra {

struct Bug {
  const char* name;
  const char* stage;  // whose result it spoils
  const char* about;
  bool (*apply)(Graph* graph, Plan* plan);  // false where there is nothing to spoil; null: the stage asks bug_is_on
};

// Names with commas between them, of the process; "" for none. An unknown name is an error that lists those there are.
void switch_on_bugs(const std::string& names);
std::string bugs_on();
bool any_bug_is_on();
bool bug_is_on(const char* name);
// After a stage: graph or plan is what there is.
void spoil(const char* stage, Graph* graph, Plan* plan);

}  // namespace lutra
