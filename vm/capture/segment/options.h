// The options of lt.compile.
#pragma once
#include <string>
#include <tuple>

namespace lutra {

struct CaptureOptions {
  int dynamic = -1;  // as TraceOptions has it
  bool fullgraph = false;
  std::string backend = "native";
  int backend_function = 0;  // registry reference of a user's backend
  int wait = -1;             // whether a call waits for the compiler; -1: as lt.config.async says
  bool operator<(const CaptureOptions& o) const {
    return std::tie(dynamic, fullgraph, backend, backend_function, wait) <
           std::tie(o.dynamic, o.fullgraph, o.backend, o.backend_function, o.wait);
  }
};

}  // namespace lutra
