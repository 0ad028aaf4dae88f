// Loads the interpreter on each GPU.
#include <zlib.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "jit/background/background.h"
#include "jit/codegen/cuda/interpreter.h"
#include "ops/core/error.h"
#include "ops/cuda/loaded_module.h"

namespace lutra::cuda {
namespace {

struct Place {
  std::shared_ptr<LoadedModule> program;
  std::shared_ptr<Job> job;  // the job that loads it
  FunctionHandle function = nullptr;
};
struct Places {
  std::mutex mutex;
  std::map<int, Place> by_device;
};
Places& places() {
  static Places* p = new Places;
  return *p;
}
void forget() {
  std::lock_guard lock(places().mutex);
  places().by_device.clear();
}
[[maybe_unused]] const bool registered = (on_set_driver(forget), true);

// Returns the newest cubin of the GPU's generation, or the PTX.
const InterpreterImage* image_for(int arch, bool ptx) {
  const InterpreterImage* best = nullptr;
  for (size_t i = 0; i < interpreter_image_count; i++) {
    const InterpreterImage& image = interpreter_images[i];
    if (image.ptx != ptx || image.arch > arch || (!ptx && image.arch / 10 != arch / 10)) continue;
    if (!best || image.arch > best->arch) best = &image;
  }
  return best;
}

bool take(std::shared_ptr<LoadedModule> program, Place& place) {
  if (!program) return false;
  place.function = program->find_function(kInterpreter);
  place.program = std::move(program);
  return place.function != nullptr;
}

bool take_image(Context& c, bool ptx, Place& place) {
  const InterpreterImage* image = image_for(c.arch, ptx);
  if (!image) return false;
  std::string whole(image->whole, '\0');
  uLongf bytes = image->whole;
  const int result = uncompress(reinterpret_cast<Bytef*>(whole.data()), &bytes, image->bytes, image->size);
  LUTRA_CHECK(result == Z_OK && bytes == image->whole, "the interpreter of kernels does not unpack");
  return take(LoadedModule::load(whole.c_str(), c), place);
}

}  // namespace

FunctionHandle interpreter(Context& c, bool wait) {
  Places& all = places();
  std::unique_lock lock(all.mutex);
  Place& place = all.by_device[c.index];
  if (place.function) return place.function;
  if (!place.job) {
    if (take_image(c, false, place) || take(LoadedModule::find(interpreter_source(), c), place)) return place.function;
    if (!has_nvrtc() && !image_for(c.arch, true)) return nullptr;
    place.job = Job::start([&c] {
      const MakesObjects scope;
      Place made;
      if (!take_image(c, true, made) && has_nvrtc()) take(LoadedModule::get(interpreter_source(), c), made);
      std::lock_guard lock(places().mutex);
      Place& place = places().by_device[c.index];  // a test that sets another driver has erased all
      place.program = made.program, place.function = made.function;
    });
  }
  if (wait) {
    const std::shared_ptr<Job> job = place.job;
    lock.unlock();
    job->finish();
    lock.lock();
  }
  return place.function;
}

}  // namespace lutra::cuda
