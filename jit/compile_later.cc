// Runs one compilation as a background job.
#include "jit/compile_later.h"

#include "ops/core/interrupt.h"

namespace lutra {

CompileLater::CompileLater(std::function<void()> compile) : compile_(std::move(compile)) {
  modes_.grad = grad_enabled();
  modes_.device = modes().device;
  modes_.settings = settings();
  job_ = Job::start([this] { run(); }, Job::kPolite);
}

CompileLater::~CompileLater() {
  unwanted_ = true;
  job_->drop();
}

void CompileLater::run() {
  const BackgroundStop stop(unwanted_);
  const ModesScope scope(&modes_);
  try {
    compile_();
  } catch (const std::exception&) {
    problem_ = std::current_exception();
  }
}

void CompileLater::check() const {
  if (problem_) std::rethrow_exception(problem_);
}

}  // namespace lutra
