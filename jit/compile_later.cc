// Runs one compilation as a background job.
#include "jit/compile_later.h"

#include "ops/core/clock.h"
#include "ops/core/interrupt.h"

namespace lutra {

CompileLater::CompileLater(std::function<void()> compile, Begin when) : compile_(std::move(compile)) {
  modes_.grad = grad_enabled();
  modes_.device = modes().device;
  modes_.settings = settings();
  if (when == kAtOnce) begin();
}

CompileLater::~CompileLater() {
  unwanted_ = true;
  if (job_) job_->drop();
}

void CompileLater::begin() {
  if (!job_) job_ = Job::start([this] { run(); }, Job::kPolite);
}

void CompileLater::run() {
  const BackgroundStop stop(unwanted_);
  const ModesScope scope(&modes_);
  const double start = thread_cpu_ms();
  try {
    compile_();
  } catch (const std::exception&) {
    problem_ = std::current_exception();
  }
  cpu_ms_ = thread_cpu_ms() - start;
}

void CompileLater::check() const {
  if (problem_) std::rethrow_exception(problem_);
}

}  // namespace lutra
