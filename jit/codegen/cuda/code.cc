// Text to a loaded function; blocks to launches.
#include "jit/codegen/cuda/code.h"

#include "ops/cuda/program.h"

namespace lutra::cuda {
namespace {

struct Compiled : LaunchCode {
  std::unique_ptr<KernelSource> source;
  std::shared_ptr<Program> program;
  size_t first_int = 0;
  Device device;

  bool prepare(const void* block, Grid& grid) const override {
    return source->grid(reinterpret_cast<const int64_t*>(static_cast<const char*>(block) + first_int), grid);
  }
  void run_block(void* block) const override {
    Grid g;
    if (!prepare(block, g)) return;
    void* params[] = {block};
    const BlockHead& head = *static_cast<const BlockHead*>(block);
    LUTRA_CUDA(launch(static_cast<FunctionHandle>(function), g.blocks[0], g.blocks[1], g.blocks[2], g.threads[0],
                      g.threads[1], g.threads[2], g.shared_bytes, static_cast<StreamHandle>(head.stream), params,
                      nullptr));
  }
};

}  // namespace

std::shared_ptr<LaunchCode> compile(const loop::Kernel& kernel, std::span<const int64_t> hints, bool several,
                                    Device device, bool listing) {
  const std::string wrong = loop::verify(kernel);
  LUTRA_CHECK(wrong.empty(), wrong, "\n", print(kernel));
  auto code = std::make_shared<Compiled>();
  code->source = generate(kernel, hints, several);
  Context& c = context(device);
  code->program = Program::get(code->source->text, c);
  code->function = code->program->function(code->source->entry.c_str());
  code->most = code->source->most;
  if (code->most > 1) code->several = code->program->function(code->source->several_entry.c_str());
  code->device = device;
  code->first_int = sizeof(BlockHead) + 8 * kernel.params.size();
  code->block_bytes = code->first_int + 8 * size_t(kernel.ints + kernel.scalars);
  code->bytes = code->source->text.size();
  if (listing) code->listing = code->source->text;
  code->source->text = {};
  return code;
}

}  // namespace lutra::cuda
