// The options of lt.compile.
#pragma once
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace lutra {

// By source: dimensions of a tensor; negative ones count from its end.
using DynamicDims = std::map<std::string, std::set<int>>;

struct CaptureOptions {
  int dynamic = -1;          // as in TraceOptions
  DynamicDims dynamic_dims;  // dimensions of arguments that are symbols from the first capture on
  bool fullgraph = false;
  bool autotune = false;  // mode "max-autotune"
  std::string backend = "native";
  int backend_function = 0;  // registry reference of a user's backend
  int wait = -1;             // whether a call waits for the compiler; -1: as lt.config.async says
  bool operator<(const CaptureOptions& o) const {
    return std::tie(dynamic, dynamic_dims, fullgraph, autotune, backend, backend_function, wait) <
           std::tie(o.dynamic, o.dynamic_dims, o.fullgraph, o.autotune, o.backend, o.backend_function, o.wait);
  }
};

}  // namespace lutra
