// The table of bugs, and their switches.
#include "jit/inject/inject.h"

#include <cstring>
#include <vector>

#include "jit/inject/bugs.h"
#include "ops/core/closest.h"

namespace lutra {
namespace {

const Bug kBugs[] = {
    {"relu", "schedule", "the lowering of relu takes the magnitude of negative numbers", wrong_relu},
    {"fusion_store", "schedule", "fusion drops one of the stores of a kernel", drop_store},
    {"reduction_last", "schedule", "a reduction leaves its last element out", skip_last},
    {"cse_attribute", "cse", "nodes that differ only in an attribute become one", ignore_attribute},
    {"dce_write", "dce", "the last write into an input goes as dead code", drop_write},
    {"view_stride", "schedule", "a view is read with its small stride in place of its large one", wrong_stride},
    {"broadcast_index", "schedule", "an operand that is broadcast along one dim is so along another, too",
     wrong_broadcast},
    {"memory_reuse", "schedule", "temporary memory is given away while it is still read", reuse_live_memory},
    {"recompute_operand", "recompute", "a value that is computed again takes another operand", wrong_operand},
    {"crash", "schedule", "the compiler fails where a graph has an exp", fail_at_exp},
    {"guard", "guards", "the machine code of guards leaves the last check of a value out", nullptr},
};

std::vector<const Bug*> on;

}  // namespace

void switch_on_bugs(const std::string& names) {
  KnownNames known;
  for (const Bug& bug : kBugs) known.add(bug.name);
  std::vector<const Bug*> wanted;
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    const std::string name = names.substr(at, end - at);
    if (!known.have(name)) {
      std::string all;
      for (const Bug& bug : kBugs) all += str(all.empty() ? "" : ", ", bug.name);
      fail("LUTRA_INJECT: unknown bug '", name, "' (there are: ", all, ")");
    }
    for (const Bug& bug : kBugs) {
      if (name == bug.name) wanted.push_back(&bug);
    }
    at = end + 1;
  }
  on = std::move(wanted);
}

std::string bugs_on() {
  std::string names;
  for (const Bug* bug : on) names += str(names.empty() ? "" : ",", bug->name);
  return names;
}

bool any_bug_is_on() { return !on.empty(); }

bool bug_is_on(const char* name) {
  for (const Bug* bug : on) {
    if (std::strcmp(bug->name, name) == 0) return true;
  }
  return false;
}

void spoil(const char* stage, Graph* graph, Plan* plan) {
  for (const Bug* bug : on) {
    if (bug->apply && std::strcmp(bug->stage, stage) == 0) bug->apply(graph, plan);
  }
}

}  // namespace lutra
