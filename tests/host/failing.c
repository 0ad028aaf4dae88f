/* Allocations that fail, each in turn, over a state's life: opening, as it comes and sandboxed, a program, compiling,
 * calls, writes, DLPack, closing. Each ends in a code and a message, or goes well; what a call has written it has
 * written once; the next life is a good one, and nothing is left. malloc and its kin are here. One thread does it all.
 * `lutra-failing FILE cuda` does so on a GPU; what the fake driver allocates is not Lutra's, and does not fail.
 * On the CPU a compiled function of a giant row is called, too: the first such call compiles its kernels once more. */
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
enum { kGiant = 5000000, kPeak = 4000007, kDip = 3000003 };
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

/* Other ops, other kernels: those of the giant row no earlier call has compiled. NULL where that failed. */
static lutra_Function* giant_function(lutra_State* S, int i, long at) {
  static const char* const ops[] = {"floor", "ceil", "round", "relu", "sqrt", "abs", "square", "trunc"};
  static const char text[] =
      "w, v, u = lt.zeros(2), lt.zeros(1, {dtype = 'int64'}), lt.zeros(1, {dtype = 'int64'})\n"
      "giant = lt.compile(function(x)\n"
      "  x = x:%s():%s():%s():%s() w:add_(1) v:add_(x:argmax(1)) u:add_(x:narrow(1, 0, x:size(1) - 1):argmin(1))\n"
      "  return w * 2, v + u end)\n"
      "for i = 270000, 270002 do giant(lt.ones(1, i)) end\n"
      "w:zero_() v:zero_() u:zero_()";
  char program[sizeof text + 20];
  lutra_Function* f = NULL;
  int code;
  sprintf(program, text, ops[i % 8], ops[i / 8 % 8], ops[i / 64 % 8], ops[i / 512 % 8]);
  left = at, seen = 0;
  code = lutra_do_string(S, program, "=giant");
  left = -1;
  keep(lutra_error(S));
  check(code == LUTRA_OK || message[0], "compiling fails without a message");
  check(at >= 0 || code == LUTRA_OK, message);
  if (!code) check(lutra_function(S, "giant", &f) == LUTRA_OK, "giant");
  return f;
}

/* A call that loses an allocation after `at` others (-1: none). Gives its code. */
static int giant_call(lutra_State* S, lutra_Tensor* x, int i, long at) {
  lutra_Function* f = giant_function(S, i, -1);
  lutra_Tensor* out[2] = {NULL, NULL};
  float w[2] = {0, 0};
  int64_t sum = 0;
  int code;
  left = at, seen = 0;
  code = lutra_invoke(f, &x, 1, out, 2);
  left = -1;
  keep(lutra_error(S));
  check(code == LUTRA_OK || message[0], "a giant row fails without a message");
  if (!code) code = lutra_tensor_copy_to(out[0], w, sizeof w);
  if (!code) code = lutra_tensor_copy_to(out[1], &sum, sizeof sum);
  check(code || (w[0] == 2 && sum == kPeak + kDip), "a call of a giant row writes once");
  lutra_tensor_free(out[0]), lutra_tensor_free(out[1]);
  lutra_function_free(f);
  return code;
}

static void giant_rows(double times) {
  static float row[kGiant];
  int64_t sizes[2] = {1, kGiant};
  lutra_State* S = lutra_open(NULL);
  lutra_Limits limits;
  lutra_Tensor* x = NULL;
  long all, at, i = 0, failed = 0;
  int kernels = 0;
  memset(&limits, 0, sizeof limits);
  limits.size = sizeof limits, limits.threads = 1;
  for (i = 0; i < kGiant; i++) row[i] = i == kPeak ? 1e30f : i == kDip ? 0 : 1;
  i = 0;
  check(lutra_set_limits(S, &limits) == LUTRA_OK, "limits");
  check(lutra_tensor_from_memory(S, row, LUTRA_FLOAT32, 2, sizes, NULL, NULL, NULL, NULL, &x) == LUTRA_OK, "x");
  check(giant_call(S, x, ++kernels, -1) == LUTRA_OK, message);
  check(giant_call(S, x, ++kernels, -1) == LUTRA_OK, message);
  all = seen;
  for (at = 0; at < all; at += times < 4 ? 7 : 1) {
    failed += giant_call(S, x, ++kernels, at) != LUTRA_OK;
    if (++i % 8 == 0) check(giant_call(S, x, ++kernels, -1) == LUTRA_OK, message);
  }
  printf("giant rows: %ld allocations a call; %ld of %ld calls failed\n", all, failed, i);
  check(all > 100 && failed > i / 8, "too few failures");
  lutra_function_free(giant_function(S, ++kernels, -1));
  all = seen;
  for (at = failed = i = 0; at < all; at += times < 4 ? 11 : 1, i++) {
    lutra_Function* f = giant_function(S, ++kernels, at);
    failed += !f;
    lutra_function_free(f);
    if (i % 64 == 0) check(giant_call(S, x, ++kernels, -1) == LUTRA_OK, message);
  }
  printf("giant rows: %ld allocations compile; %ld of %ld failed\n", all, failed, i);
  check(failed > i / 8, "too few failures");
  lutra_tensor_free(x);
  lutra_close(S);
}

int main(int argc, char** argv) {
  const char* scale = getenv("LUTRA_TEST_SCALE");
  if (argc > 2) device = argv[2];
  if (!device) giant_rows(scale ? atof(scale) : 1);
  for (sandbox = 0; sandbox < 2; sandbox++) lives_of(scale ? atof(scale) : 1);
  return failures != 0;
}
