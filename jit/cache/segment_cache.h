// Compiled graphs on disk: a graph in; what an earlier process compiled of it out, or nothing.
//
// An entry's key is all that a compilation depends on: Lutra's build, the device and its numerics, the options, the
// graph's text. Its data is an artifact (jit/artifact). The questions that the compilation
// asked of the graph's symbols are in the plan: they are asked again, so that capture guards them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "jit/graph/graph.h"
#include "jit/runtime/executable.h"

namespace lutra {

struct SegmentCounts {
  uint64_t hits = 0, misses = 0;
  uint64_t refused = 0;  // entries found that could not be taken
};
// Of the process.
SegmentCounts segment_counts();

// False where the cache is off, there is no place for it, or this build has no id.
bool keeps_segments();
struct SegmentKey {
  std::string text;    // empty: nothing is kept
  std::string target;  // what the code is made for, which is a part of text
};
// text: the graph's. about: names the entry.
SegmentKey segment_key(const Graph& graph, const std::string& text, const std::string& about,
                       const std::vector<std::string>& disabled_passes);
// Null where there is none.
std::shared_ptr<Executable> find_segment(const SegmentKey& key, const Graph& graph);
// given: the constants of the graph that the key is of.
void keep_segment(const SegmentKey& key, const Executable& executable, const std::vector<Tensor>& given);

}  // namespace lutra
