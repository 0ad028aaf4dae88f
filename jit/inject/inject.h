// Compiler bugs that tests switch on. They change the output of a compiler stage.
//
// Invariants:
// 1. A bug affects compiled segments only. Eager ops, which are compiled in the same way with one node, stay correct:
//    they are the reference.
// 2. A bug computes something else. It accesses no memory that the correct code may not access.
// 3. If no bug is on, a compilation makes one check for each stage, and a run none.
#pragma once
#include <string>

#include "jit/graph/graph.h"
#include "jit/schedule/plan.h"

namespace lutra {

struct Bug {
  const char* name;
  const char* stage;  // the stage whose output it spoils
  const char* about;
  bool (*apply)(Graph* graph, Plan* plan);  // returns false if there is nothing to spoil; null: the stage itself calls
                                            // bug_is_on
};

// Switches on the named bugs for the process; names are separated by commas, "" for none. For an unknown name, throws
// an error that lists the bugs.
void switch_on_bugs(const std::string& names);
std::string bugs_on();
bool any_bug_is_on();
bool bug_is_on(const char* name);
// Call it after a stage, with the stage's graph and plan.
void spoil(const char* stage, Graph* graph, Plan* plan);

}  // namespace lutra
