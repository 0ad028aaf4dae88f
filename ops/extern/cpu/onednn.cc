// libdnnl's symbols in, one single-threaded sgemm out. Debian's oneDNN runs on OpenMP, whose teams stall when a core is
// busy: the calling thread is limited to a team of one for the length of a call and gets its own setting back.
#include "ops/extern/cpu/onednn.h"

#include <dlfcn.h>
#include <dnnl.h>

#include <cstdio>
#include <cstdlib>

#include "ops/core/error.h"
#include "ops/extern/extern.h"

namespace lutra {
namespace {

struct OneDnn {
  decltype(&dnnl_sgemm) sgemm = nullptr;
  void (*omp_set_num_threads)(int) = nullptr;
  int (*omp_get_max_threads)() = nullptr;
};

OneDnn open_library() {
  const char* name = std::getenv("LUTRA_ONEDNN");
  if (!name || !*name) name = "libdnnl.so.2";
  OneDnn lib;
  void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  const char* why = handle ? nullptr : dlerror();
  if (handle) {
    lib.sgemm = reinterpret_cast<decltype(lib.sgemm)>(dlsym(handle, "dnnl_sgemm"));
    // Found through the handle's dependencies; absent when the library was built on other threads than OpenMP's.
    lib.omp_set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "omp_set_num_threads"));
    lib.omp_get_max_threads = reinterpret_cast<int (*)()>(dlsym(handle, "omp_get_max_threads"));
    if (!lib.sgemm) why = "it has no dnnl_sgemm";
  }
  if (why) {
    std::fprintf(stderr,
                 "lutra: oneDNN (%s, Debian's libdnnl2) cannot be used: %s; matrix products run as plain loops\n", name,
                 why);
  }
  return lib;
}

const OneDnn& library() {
  static const OneDnn lib = open_library();
  return lib;
}

// Invariant: the caller's own OpenMP setting is what it was after the scope.
class OneThread {
 public:
  explicit OneThread(const OneDnn& lib) : lib_(lib) {
    if (!lib.omp_set_num_threads || !lib.omp_get_max_threads) return;
    saved_ = lib.omp_get_max_threads();
    if (saved_ != 1) lib.omp_set_num_threads(1);
  }
  ~OneThread() {
    if (saved_ > 1) lib_.omp_set_num_threads(saved_);
  }
  OneThread(const OneThread&) = delete;

 private:
  const OneDnn& lib_;
  int saved_ = 0;
};

}  // namespace

bool onednn_available() { return library().sgemm != nullptr; }

void onednn_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                  const float* b, int64_t ldb, float* c, int64_t ldc) {
  const OneDnn& lib = library();
  OneThread scope(lib);
  const dnnl_status_t status =
      lib.sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, 0.0f, c, ldc);
  if (status == dnnl_out_of_memory) throw Error(ErrorKind::kMemory, "matmul: oneDNN is out of memory");
  LUTRA_CHECK(status == dnnl_success, "dnnl_sgemm ", m, "x", k, "x", n, " failed with status ", int(status));
}

}  // namespace lutra
