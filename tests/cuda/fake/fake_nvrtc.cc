// A fake NVRTC. In: CUDA source. Out: a shared library for the host instead of a cubin; the fake driver loads it. It
// exports shim_launch_name(grid, threads, params) and shim_size_name(i) for each kernel `name`.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#define FAKE extern "C" __attribute__((visibility("default"))) int

namespace {

struct Program {
  std::string source, out, log;
};

// Beside this library lie kernels.h and its precompiled form.
std::string folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&folder), &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The source and, for each kernel that the preprocessor leaves in `kept`, what starts it.
std::string with_launchers(const std::string& source, const std::string& kept) {
  const bool plain = source.find("#define KERNEL") != std::string::npos;
  std::string text = std::string(plain ? "using namespace std;\n" : "") + source + "\n";
  static const std::regex kernels(
      "extern \"C\" __global__ void\\s+(?:__launch_bounds__\\s*\\(.*?\\)\\s*)?(\\w+)\\s*\\(");
  for (std::sregex_iterator i(kept.begin(), kept.end(), kernels), end; i != end; ++i) {
    const std::string name = (*i)[1];
    text +=
        "extern \"C\" void shim_launch_" + name +
        "(const unsigned* grid, const unsigned* threads, void** params) {\n  shim::launch([](void* p) { shim_call(&" +
        name + ", static_cast<void**>(p)); }, params, grid, threads);\n}\nextern \"C\" size_t shim_size_" + name +
        "(size_t i) { return shim_size(&" + name + ", i); }\n";
  }
  return text;
}

}  // namespace

FAKE nvrtcVersion(int* major, int* minor) {
  *major = 12, *minor = 99;
  return 0;
}
FAKE nvrtcCreateProgram(Program** p, const char* source, const char*, int, const char* const*, const char* const*) {
  *p = new Program{source, "", ""};
  return 0;
}
FAKE nvrtcDestroyProgram(Program** p) {
  delete *p;
  return 0;
}
FAKE nvrtcCompileProgram(Program* p, int, const char* const*) {
  // A line a program: who compiled, and how much.
  if (const char* counted = std::getenv("FAKE_NVRTC_LOG")) std::ofstream(counted, std::ios::app) << getpid() << "\n";
  char base[] = "/tmp/lutra_fake_XXXXXX";
  if (!mkdtemp(base)) return 1;
  const std::string at = base, library = at + "/k.so", log = at + "/log";
  std::ofstream(at + "/k.cu") << p->source;
  const std::string kept = at + "/kept";
  (void)!std::system(
      (std::string(LUTRA_FAKE_COMPILE) + " -E -P -DLUTRA_EMULATED -x c++ -o " + kept + " " + at + "/k.cu").c_str());
  std::ofstream(at + "/k.cc") << with_launchers(p->source, read_file(kept));
  const std::string command = std::string(LUTRA_FAKE_COMPILE) + " -include " + folder() + "/kernels.h -shared -o " +
                              library + " " + at + "/k.cc > " + log + " 2>&1";
  const int failed = std::system(command.c_str());
  p->out = read_file(library), p->log = read_file(log);
  if (failed && std::getenv("LUTRA_FAKE_KEEP")) {
    std::fprintf(stderr, "fake nvrtc: %s/k.cc\n", base);
  } else {
    (void)!std::system(("rm -rf " + at).c_str());
  }
  return failed ? 6 : 0;
}
FAKE nvrtcGetCUBINSize(Program* p, size_t* n) {
  *n = p->out.size();
  return 0;
}
FAKE nvrtcGetCUBIN(Program* p, char* to) {
  std::memcpy(to, p->out.data(), p->out.size());
  return 0;
}
FAKE nvrtcGetPTXSize(Program*, size_t*) { return 5; }
FAKE nvrtcGetPTX(Program*, char*) { return 5; }
FAKE nvrtcGetProgramLogSize(Program* p, size_t* n) {
  *n = p->log.size() + 1;
  return 0;
}
FAKE nvrtcGetProgramLog(Program* p, char* to) {
  std::memcpy(to, p->log.c_str(), p->log.size() + 1);
  return 0;
}
