// Combines a plan, with or without code, and its device's runner.
#include "jit/runtime/executable.h"

#include "jit/device/backend.h"

namespace lutra {

Executable::Executable(Plan plan, const Codes& codes, std::vector<Tensor> constants, const CodeOptions& options)
    : own_(std::move(plan)),
      flat_(*own_, codes, std::move(constants), options),
      runner_(flat_.backend.make_runner(flat_)) {}

Executable::Executable(const Plan& function, const Codes& codes, const CodeOptions& options)
    : flat_(function, codes, {}, options), runner_(flat_.backend.make_runner(flat_)) {}

std::shared_ptr<Executable> Executable::build(Plan plan, std::vector<Tensor> constants, bool listing, bool at_once) {
  return std::shared_ptr<Executable>(
      new Executable(std::move(plan), {}, std::move(constants), CodeOptions{listing, at_once}));
}

std::shared_ptr<Executable> Executable::link(Artifact artifact, const std::vector<Tensor>& given) {
  std::vector<Tensor> constants = make_constants(artifact, given);
  return std::shared_ptr<Executable>(
      new Executable(std::move(artifact.plan), artifact.codes, std::move(constants), CodeOptions()));
}

std::shared_ptr<Executable> Executable::of_function(const Plan& plan, const Codes& codes, const CodeOptions& options) {
  return std::shared_ptr<Executable>(new Executable(plan, codes, options));
}

}  // namespace lutra
