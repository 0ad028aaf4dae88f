// Compiled graphs on disk. In: a graph. Out: the code that an earlier process compiled for it, or nothing.
//
// An entry's key has all that a compilation depends on: Lutra's build, the device and its numerics, the options, the
// graph's text. Its data is an artifact (jit/artifact). The plan in it lists the compilation's questions about the
// graph's symbols. They are asked again, so that capture guards on the answers.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "jit/graph/graph.h"
#include "jit/runtime/executable.h"

namespace lutra {

struct SegmentCounts {
  uint64_t hits = 0, misses = 0;
  uint64_t refused = 0;  // entries that were found but could not be used
};
// Returns the counts of the process.
SegmentCounts segment_counts();

// Returns false if the cache is off, there is no folder for it, or this build has no id.
bool keeps_segments();
struct SegmentKey {
  std::string text;    // empty: the cache is not used
  std::string target;  // what the code is compiled for; also a part of text
};
// Makes a graph's key. text: the graph's text. about: names the entry.
SegmentKey segment_key(const Graph& graph, const std::string& text, const std::string& about,
                       const std::vector<std::string>& disabled_passes);
// Returns null if there is no usable entry.
std::shared_ptr<Executable> find_segment(const SegmentKey& key, const Graph& graph);
// given: the constants of the key's graph.
void keep_segment(const SegmentKey& key, const Executable& executable, const std::vector<Tensor>& given);

}  // namespace lutra
