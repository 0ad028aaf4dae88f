// Tests the interpreter of kernels (jit/codegen/cuda/interpreter.h). As host code it gives the bits of the exact
// interpreter, for every instruction and type and for random kernels. As GPU code NVRTC compiles it.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "jit/codegen/cuda/interpreter.h"
#include "jit/device/cuda/machine.h"
#include "ops/cuda/loaded_module.h"
#include "tests/codegen/random_kernel.h"
#include "tests/cuda_codegen/cubins.h"
#include "tests/golden.h"

namespace lutra {
namespace {

// Its text compiled by the host's compiler, once.
class HostInterpreter {
 public:
  HostInterpreter() {
    std::string folder = (std::filesystem::temp_directory_path() / "lutra-shim-XXXXXX").string();
    REQUIRE(mkdtemp(folder.data()));
    std::ofstream(folder + "/i.cc")
        << "#include \"" << source_path("tests/cuda_codegen/shim.h") << "\"\n"
        << cuda::interpreter_source()
        << "extern \"C\" void run(void* p, const unsigned* grid, const unsigned* threads) {\n"
           "  shim::launch([](void* q) { lutra_interpreter(*static_cast<interpreter::EncodedKernel*>(q)); }, p, grid, "
           "threads);\n}\n";
    const char* compiler = getenv("CXX");
    const std::string command =
        str(compiler ? compiler : "c++", " -std=c++20 -w -O1 -ffp-contract=off -fPIC -shared -o ", folder, "/i.so ",
            folder, "/i.cc");
    REQUIRE(std::system(command.c_str()) == 0);
    void* library = dlopen((folder + "/i.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    std::filesystem::remove_all(folder);
    REQUIRE(library);
    run_ = reinterpret_cast<Run>(dlsym(library, "run"));
    REQUIRE(run_);
  }
  static const HostInterpreter& get() {
    static const HostInterpreter only;
    return only;
  }

  // False where it cannot hold the kernel.
  bool check(const Case& c) const {
    const auto program = cuda::Interpreted::make(c.kernel, c.ints, cuda::stated_machine());
    if (!program) return false;
    std::vector<std::unique_ptr<Bytes>> copies;
    for (auto& b : c.buffers) copies.push_back(std::make_unique<Bytes>(*b));
    LaunchFault fault;
    uint64_t words[cuda::kInterpreterWords];
    program->fill(c.block(copies, &fault).data(), words);
    cuda::Grid grid;
    if (program->grid(c.ints.data(), grid)) run_(words, grid.blocks, grid.threads);
    LaunchFault expected;
    const auto want = c.run("interp", &expected);
    CHECK(fault.set == expected.set);
    if (expected.set) return true;
    const std::string d = difference(want, copies);
    if (d.empty()) return true;
    INFO(print(c.kernel));
    FAIL_CHECK("exact and interpreted on a GPU differ: " << d);
    return true;
  }

 private:
  using Run = void (*)(void*, const unsigned*, const unsigned*);
  Run run_;
};

// result = op of loads of type `of`.
Case one_op(loop::Op op, DType of, DType result, int64_t n) {
  std::string params, body, operands;
  std::vector<DType> types;
  for (int i = 0; i < loop::info(op).operands; i++) {
    const DType t = op == loop::Op::kSelect && i == 0 ? DType::kBool : of;
    params += str("p", i, ": ", ir(t), " in, ");
    body += str("    %", i, " = load.", ir(t), " p", i, "[i0]\n");
    operands += str(i ? ", %" : " %", i);
    types.push_back(t);
  }
  types.push_back(result);
  Case c(str("kernel @op(", params, "p", types.size() - 1, ": ", ir(result),
             " out; n0;) {\n  for i0 in n0 parallel vector {\n", body, "    %9 = ", loop::name(op), ".", ir(result),
             operands, "\n    store.", ir(result), " p", types.size() - 1, "[i0], %9\n  }\n}\n"));
  for (DType t : types) c.buffer(t, size_t(n));
  c.ints = {n};
  c.end = n;
  c.fill_all(uint64_t(n) + uint64_t(op), 0.5);
  return c;
}

}  // namespace

TEST_CASE("interpreted on a GPU: every instruction and type", "[cuda][interpreter]") {
  const HostInterpreter& host = HostInterpreter::get();
  std::vector<DType> types;
  for (int t = 0; !is_stored(DType(t)); t++) types.push_back(DType(t));
  int checked = 0;
  for (int i = 0; i < int(loop::Op::kCount); i++) {
    const loop::Op op = loop::Op(i);
    const loop::OpInfo& row = loop::info(op);
    for (DType t : types) {
      std::vector<DType> results;
      if (row.rule == loop::TypeRule::kCast) results = types;
      if (row.rule == loop::TypeRule::kSelect) results = {t};
      if (row.rule == loop::TypeRule::kSame && loop::accepts(row.types, t)) results = {t};
      if (row.rule == loop::TypeRule::kCompare && loop::accepts(row.types, t)) results = {DType::kBool};
      for (DType result : results) {
        INFO(loop::name(op) << " " << ir(t) << " " << ir(result));
        REQUIRE(host.check(one_op(op, t, result, 700)));
        checked++;
      }
    }
  }
  CHECK(checked > 300);
}

TEST_CASE("interpreted on a GPU: constants, scalars, indices, random numbers", "[cuda][interpreter]") {
  for (const char* t : {"f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"}) {
    const DType type = dtype_from_ir_name(t);
    const std::string random =
        is_float(type) ? str("%9 = uniform.", t, " %5, 3\n %11 = normal.", t, " %5, 4\n %10 = add.", t, " %9, %11\n")
                       : str("%9 = randbits.i64 %5, 0\n %10 = cast.", t, " %9\n");
    if (t == std::string("i64")) continue;  // a cast to what it is
    Case c(str("kernel @k(p0: ", t, " out, p1: ", t, " out; n0, n1; x0) { for i0 in n0 parallel vector {\n %1 = const.",
               t, " -3\n %2 = scalar.", t,
               " x0\n %4 = intarg.i64 n1\n %5 = index.i64 i0\n %6 = mul.i64 %4, %5\n %7 = cast.", t, " %6\n %8 = add.",
               t, " %2, %7\n %3 = mul.", t, " %8, %1\n", random, " store.", t, " p0[i0], %3\n store.", t,
               " p1[i0], %10\n} }"));
    c.buffer(type, 137).buffer(type, 137);
    c.ints = {137, 5}, c.scalars = {-2.7}, c.end = 137;
    INFO(t);
    CHECK(HostInterpreter::get().check(c));
  }
}

TEST_CASE("interpreted on a GPU: random kernels, loops and reductions", "[cuda][interpreter]") {
  const auto [first, last] = seeds(150);
  uint64_t held = 0;
  for (uint64_t seed = first; seed <= last; seed++) {
    INFO("LUTRA_TEST_SEED=" << seed);
    held += HostInterpreter::get().check(KernelGenerator(seed, true).run());
  }
  CHECK(held * 2 > last - first + 1);
}

TEST_CASE("the interpreter compiles to cubins", "[nvrtc]") {
  if (!cuda::has_nvrtc()) {
    WARN("skipped: " << cuda::nvrtc_problem());
    return;
  }
  CHECK(compile_problems({cuda::interpreter_source()}) == "");
}

}  // namespace lutra
