// A plan in; its program and its device's runner, put together.
#include "jit/runtime/executable.h"

#include "jit/device/backend.h"

namespace lutra {

Executable::Executable(Plan plan, bool listing, bool at_once)
    : flat_(std::move(plan), listing, at_once), runner_(flat_.backend.make_runner(flat_)) {}

std::shared_ptr<Executable> Executable::build(Plan plan, bool listing, bool at_once) {
  return std::shared_ptr<Executable>(new Executable(std::move(plan), listing, at_once));
}

}  // namespace lutra
