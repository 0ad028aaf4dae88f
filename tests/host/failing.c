/* Allocations that fail, each in turn, over a state's life: opening, as it comes and sandboxed, a program, compiling,
 * calls, writes, DLPack, closing. Each ends in a code and a message, or goes well; what a call has written it has
 * written once; the next life is a good one, and nothing is left. malloc and its kin are here. One thread does it all.
 * `lutra-failing FILE cuda` does so on a GPU; what the fake driver allocates is not Lutra's, and does not fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "tests/host/check.h"
#include "tests/host/dlpack.h"
#include "vm/capi/lutra.h"

void* __libc_malloc(size_t n);
void* __libc_calloc(size_t n, size_t size);
void* __libc_realloc(void* p, size_t n);
void* __libc_memalign(size_t alignment, size_t n);
void __libc_free(void* p);

static __thread long left = -1, seen; /* left: so many allocations until one fails, -1: never */

static long blocks; /* that live */
static __thread int within; /* the fake driver */

void fake_cuda_within(int change) { within += change; }

/* libgcc's register of machine code (LuaJIT's) does not survive it. */
static int is_libgcc(void* caller) {
  Dl_info at;
  return dladdr(caller, &at) && at.dli_fname && strstr(at.dli_fname, "libgcc_s");
}

static int fails(void* caller) {
  if (within) return 0;
  seen++;
  if (left < 0 || left-- > 0) return 0;
  if (is_libgcc(caller)) return left = -1, 0;
  left = -1;
  errno = ENOMEM;
  return 1;
}
static void* counted(void* p) {
  if (p) __sync_fetch_and_add(&blocks, 1);
  return p;
}

#define FAILS fails(__builtin_return_address(0))
void* malloc(size_t n) { return FAILS ? NULL : counted(__libc_malloc(n)); }
void* calloc(size_t n, size_t size) { return FAILS ? NULL : counted(__libc_calloc(n, size)); }
void* realloc(void* p, size_t n) {
  void* result = FAILS ? NULL : __libc_realloc(p, n);
  return p ? result : counted(result);
}
void* memalign(size_t alignment, size_t n) { return FAILS ? NULL : counted(__libc_memalign(alignment, n)); }
void* aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }
int posix_memalign(void** p, size_t alignment, size_t n) { return (*p = memalign(alignment, n)) ? 0 : ENOMEM; }
void free(void* p) {
  if (p) __sync_fetch_and_sub(&blocks, 1);
  __libc_free(p);
}

static const char program[] =
    "local net = lt.nn.Linear(3, 2)\n"
    "f = lt.compile(function(x) return (net(x) * 2):relu() + 1 end)\n"
    "g = function(x) local y = lt.ones(2, {requires_grad = true}); (y * x:sum()):sum():backward() return y.grad end\n"
    "w, v, at = lt.zeros(2), lt.zeros(3), lt.full({1}, 2, {dtype = 'int64'})\n"
    "step = lt.compile(function(x)\n"
    "  w:add_(1) v:index_add_(0, at, x:sum():view(1)) v:copy_(v:cumsum(0)) return w * 2 end)";

static char message[400];
static const char* device; /* NULL: the CPU */
static int sandbox;

static void keep(const char* text) {
  message[0] = 0;
  strncat(message, text, sizeof message - 1);
}

/* Calls f, g and step, and takes g's result through DLPack. 0 where all went well. */
static int calls(lutra_State* S, lutra_Tensor* x) {
  float sums[2] = {0, 0}, doubled[2] = {0, 0};
  lutra_Tensor *y = NULL, *z = NULL, *w = NULL;
  lutra_Function *f = NULL, *g = NULL, *step = NULL;
  struct DLManagedTensorVersioned* managed = NULL;
  int i, code = lutra_function(S, "f", &f);
  if (!code) code = lutra_function(S, "g", &g);
  if (!code) code = lutra_function(S, "step", &step);
  for (i = 0; !code && i < 3; i++) {
    code = lutra_invoke(f, &x, 1, &y, 1);
    lutra_tensor_free(y), y = NULL;
    if (!code) code = lutra_invoke(step, &x, 1, &w, 1);
    if (!code) code = lutra_tensor_copy_to(w, doubled, sizeof doubled);
    lutra_tensor_free(w), w = NULL;
    check(code || doubled[0] == 2 * (float)(i + 1), "a call writes once");
  }
  if (!code) code = lutra_invoke(g, &x, 1, &z, 1);
  if (!code) code = lutra_tensor_to_dlpack(z, &managed);
  if (!code && (code = lutra_tensor_from_dlpack(S, managed, &y)) == LUTRA_OK) managed = NULL;
  if (managed) managed->deleter(managed);
  if (!code) code = lutra_tensor_copy_to(y, sums, sizeof sums);
  check(code || (sums[0] == 21 && sums[1] == 21), "the gradient");
  lutra_tensor_free(y);
  lutra_tensor_free(z);
  lutra_function_free(f), lutra_function_free(g), lutra_function_free(step);
  return code;
}

/* 0 where all went well; otherwise message tells. */
static int life(void) {
  float data[6] = {1, 2, 3, 4, 5, 6};
  int64_t sizes[2] = {2, 3};
  lutra_State* S;
  lutra_Options options;
  lutra_Limits limits;
  lutra_Tensor* x = NULL;
  int code;
  memset(&options, 0, sizeof options), memset(&limits, 0, sizeof limits);
  options.size = sizeof options, options.device = device, options.sandbox = sandbox;
  limits.size = sizeof limits, limits.threads = 1;
  S = lutra_open(&options);
  if (!S) {
    keep(lutra_error(NULL));
    return LUTRA_ERROR_MEMORY;
  }
  code = lutra_set_limits(S, &limits);
  if (!code) code = lutra_do_string(S, program, "=program");
  if (!code && device) {
    code = lutra_tensor_empty(S, LUTRA_FLOAT32, 2, sizes, device, &x);
    if (!code) code = lutra_tensor_copy_from(x, data, sizeof data);
  } else if (!code) {
    code = lutra_tensor_from_memory(S, data, LUTRA_FLOAT32, 2, sizes, NULL, NULL, NULL, NULL, &x);
  }
  if (!code) code = calls(S, x);
  keep(code && !lutra_error(S)[0] ? lutra_error(NULL) : lutra_error(S));
  lutra_tensor_free(x);
  lutra_close(S);
  return code;
}

/* Lives, of which each but some lose an allocation. */
static void lives_of(double times) {
  long lives, all, before, i, failed = 0;
  check(life() == 0, message);
  check(life() == 0, message);
  seen = 0;
  check(life() == 0, message);
  all = seen, before = blocks;
  lives = (long)(times * (device ? 1000 : (double)all)); /* on the CPU each allocation in turn, */
  if (sandbox) lives /= 4;                               /* in a sandbox with LUTRA_TEST_SCALE=4 */
  for (i = 0; i < lives; i++) {
    /* The first ones, then anywhere; each in turn where the lives suffice. */
    const long at = i < lives / 3 || lives >= all ? i % all : (long)((double)all * rand() / RAND_MAX);
    int code;
    left = at;
    code = life();
    left = -1;
    failed += code != 0;
    if (code != 0 && !message[0]) {
      ++failures;
      fprintf(stderr, "FAILED: allocation %ld of %ld: code %d without a message\n", at, all, code);
    }
    if (i % 8 == 0 && (code = life()) != 0) {
      ++failures;
      fprintf(stderr, "FAILED: the life after allocation %ld failed: code %d, %s\n", at, code, message);
    }
  }
  check(life() == 0, message);
  printf("%s: %ld allocations a life; %ld of %ld lives failed; %ld blocks more\n", sandbox ? "sandboxed" : "open", all,
         failed, lives, blocks - before);
  check(failed > lives / 4, "too few failures");
  check(blocks - before < 2000, "blocks are left"); /* what the process keeps once, lists of closed states above all */
}

int main(int argc, char** argv) {
  const char* scale = getenv("LUTRA_TEST_SCALE");
  if (argc > 2) device = argv[2];
  for (sandbox = 0; sandbox < 2; sandbox++) lives_of(scale ? atof(scale) : 1);
  return failures != 0;
}
