// Sets the number of threads within a scope.
#pragma once
#include "ops/core/settings.h"

namespace lutra {

struct Threads {
  explicit Threads(int n) : before(settings().num_threads) { settings().num_threads = n; }
  ~Threads() { settings().num_threads = before; }
  int before;
};

}  // namespace lutra
