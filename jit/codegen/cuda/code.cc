// Compiles source to a loaded function, at once or later. Turns blocks into launches.
#include "jit/codegen/cuda/code.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "jit/background/background.h"
#include "jit/codegen/cuda/interpreter.h"
#include "ops/cuda/loaded_module.h"

namespace lutra::cuda {
namespace {

// Limits for a launch by the interpreter: a longer one waits for NVRTC. Each takes about a hundredth of a second
// (measured on an H100: 3 ns for a thousand instructions, 350 ns for one of a single warp).
constexpr double kMaxInstructions = 0x1p32, kMaxOfThread = 0x1p15;
// The limit for all launches of a kernel together: as long as NVRTC takes to compile it. A kernel beyond it is compiled
// at once, before others that wait.
constexpr double kMaxInAll = 0x1p34;

enum class When { kNever, kUntilCompiled, kAlways };
When interpreter_wanted() {
  static const When when = [] {
    const char* text = std::getenv("LUTRA_CUDA_INTERPRET");
    if (!text || !*text) return When::kUntilCompiled;
    return *text == '0' ? When::kNever : When::kAlways;
  }();
  return when;
}

struct SourceCode : LaunchCode {
  std::unique_ptr<KernelSource> source;
  std::shared_ptr<LoadedModule> program;
  std::unique_ptr<Interpreted> interpreted;  // null if it is not needed
  std::shared_ptr<Job> job;                  // null: it has the interpreter only, or is compiled already
  FunctionHandle stand_in = nullptr;         // the interpreter, until the kernel is compiled
  size_t first_int = 0;
  mutable std::atomic<double> spent{0};  // instructions that the interpreter's launches have run

  void set(std::shared_ptr<LoadedModule> made) {
    program = std::move(made);
    function = program->function(source->entry.c_str());
    if (most > 1) several = program->function(source->several_entry.c_str());
    source->text = {};
  }
  const int64_t* ints_of(const void* block) const {
    return reinterpret_cast<const int64_t*>(static_cast<const char*>(block) + first_int);
  }
  bool ready() const override { return !interpreted || (job && job->done()); }
  // Without NVRTC there is only the interpreter.
  void complete() const override {
    if (job) job->finish();
  }
  bool prepare(const void* block, Grid& grid) const override { return source->grid(ints_of(block), grid); }

  void run_block(void* block) const override {
    const StreamHandle stream = static_cast<StreamHandle>(static_cast<const BlockHead*>(block)->stream);
    const auto launch_it = [&](FunctionHandle f, const Grid& g, void* param) {
      void* params[] = {param};
      LUTRA_CUDA(launch(f, g.blocks[0], g.blocks[1], g.blocks[2], g.threads[0], g.threads[1], g.threads[2],
                        g.shared_bytes, stream, params, nullptr));
    };
    Grid g;
    if (!ready()) {
      const Interpreted::Cost cost = interpreted->cost(ints_of(block));
      const double thread = cost.thread * (kMaxInstructions / kMaxOfThread);
      const double all = spent.load(std::memory_order_relaxed) + std::max(cost.total, thread);
      const bool short_enough = cost.total <= kMaxInstructions && cost.thread <= kMaxOfThread && all <= kMaxInAll;
      if (!job || short_enough) {
        spent.store(all, std::memory_order_relaxed);
        uint64_t words[kInterpreterWords];
        interpreted->fill(block, words);
        if (interpreted->grid(ints_of(block), g)) launch_it(stand_in, g, words);
        return;
      }
      complete();
    }
    if (prepare(block, g)) launch_it(static_cast<FunctionHandle>(function), g, block);
  }
};

std::shared_ptr<LoadedModule> compiled(const std::string& source, Context& c) {
  const MakesObjects scope;
  return LoadedModule::get(source, c);
}

}  // namespace

std::shared_ptr<LaunchCode> compile(const loop::Kernel& kernel, std::span<const int64_t> hints, const Machine& machine,
                                    bool several, bool at_once, Context& c, bool listing) {
  const std::string wrong = loop::verify(kernel);
  LUTRA_CHECK(wrong.empty(), wrong, "\n", print(kernel));
  auto code = std::make_shared<SourceCode>();
  code->source = generate(kernel, hints, machine, several);
  code->most = code->source->most;
  code->first_int = sizeof(BlockHead) + 8 * kernel.params.size();
  code->block_bytes = code->first_int + 8 * size_t(kernel.ints + kernel.scalars);
  code->bytes = code->source->text.size();
  if (listing) code->listing = code->source->text;
  const When when = interpreter_wanted();
  if (when != When::kAlways) {
    if (auto found = LoadedModule::find(code->source->text, c)) return code->set(std::move(found)), code;
  }
  if (when == When::kAlways || !has_nvrtc() || (at_once && when != When::kNever)) {
    code->stand_in = interpreter(c, when == When::kAlways);
    if (code->stand_in) code->interpreted = Interpreted::make(kernel, hints, machine);
  }
  if (!code->interpreted) return code->set(compiled(code->source->text, c)), code;
  if (when == When::kAlways || !has_nvrtc()) return code;
  // The code owns the job; the job owns the code only while it runs.
  code->job = Job::start([weak = std::weak_ptr<SourceCode>(code), &c] {
    if (auto code = weak.lock()) code->set(compiled(code->source->text, c));
  });
  return code;
}

}  // namespace lutra::cuda
