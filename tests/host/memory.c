/* A host that brings memory and threads of its own: every block comes back, results are the same, failures are errors. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>

#include "tests/host/check.h"
#include "vm/capi/lutra.h"

typedef struct Heap {
  long blocks, bytes, most, calls;
  long limit;   /* bytes that there are; 0: any number */
  size_t shift; /* of each block, so that it is not aligned */
} Heap;

static void* give(void* arg, size_t bytes, size_t alignment) {
  Heap* heap = arg;
  void* block = NULL;
  check(bytes > 0 && alignment == 64, "what is asked for");
  __sync_fetch_and_add(&heap->calls, 1);
  if (heap->limit && heap->bytes + (long)bytes > heap->limit) return NULL;
  if (posix_memalign(&block, alignment, bytes + heap->shift)) return NULL;
  __sync_fetch_and_add(&heap->blocks, 1);
  __sync_fetch_and_add(&heap->bytes, (long)bytes);
  if (heap->bytes > heap->most) heap->most = heap->bytes;
  return (char*)block + heap->shift;
}

static void take(void* arg, void* block, size_t bytes) {
  Heap* heap = arg;
  check(block != NULL && bytes > 0, "what is given back");
  __sync_fetch_and_sub(&heap->blocks, 1);
  __sync_fetch_and_sub(&heap->bytes, (long)bytes);
  free((char*)block - heap->shift);
}

/* Tasks on as many threads as there are, the calling one not among them. */
typedef struct Job {
  void (*task)(void*, int);
  void* arg;
  int n, next;
} Job;

static void* work(void* arg) {
  Job* job = arg;
  int i;
  while ((i = __sync_fetch_and_add(&job->next, 1)) < job->n) job->task(job->arg, i);
  return NULL;
}

typedef struct Pool {
  int threads;
  long jobs, tasks;
} Pool;

static void on_threads(void* arg, int n, void (*task)(void*, int), void* task_arg) {
  Pool* pool = arg;
  pthread_t threads[8];
  Job job;
  int i;
  job.task = task, job.arg = task_arg, job.n = n, job.next = 0;
  __sync_fetch_and_add(&pool->jobs, 1), __sync_fetch_and_add(&pool->tasks, n);
  for (i = 0; i < pool->threads; i++) pthread_create(&threads[i], NULL, work, &job);
  for (i = 0; i < pool->threads; i++) pthread_join(threads[i], NULL);
}

static void backwards(void* arg, int n, void (*task)(void*, int), void* task_arg) {
  ((Pool*)arg)->jobs++;
  while (n-- > 0) task(task_arg, n);
}

static lutra_State* open_with(Heap* heap, Pool* pool, void (*run)(void*, int, void (*)(void*, int), void*)) {
  lutra_Options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  if (heap) options.allocator.allocate = give, options.allocator.free = take, options.allocator.arg = heap;
  if (pool) options.threads.run = run, options.threads.arg = pool, options.threads.count = pool->threads;
  return lutra_open(&options);
}

static void run(lutra_State* S, const char* program) {
  const int code = lutra_do_string(S, program, "=test");
  check(code == LUTRA_OK, program);
  if (code != LUTRA_OK) fprintf(stderr, "  %d %s\n", code, lutra_error(S));
}

static void test_memory(void) {
  Heap heap = {0, 0, 0, 0, 0, 0};
  lutra_Tensor *kept = NULL, *none = NULL;
  int64_t sizes[1] = {1000}, large[1] = {100000000};
  lutra_State* S = open_with(&heap, NULL, NULL);
  check(S != NULL, "open");
  run(S, "local net = lt.nn.Linear(20, 30) local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-3})\n"
         "local step = lt.compile(function(x) opt:zero_grad() local l = net(x):relu():sum() l:backward() opt:step() return l end)\n"
         "for i = 1, 5 do step(lt.randn(8, 20)) end a = lt.ones(300, 300) b = a:mm(a):sort() c = lt.empty(0)");
  check(heap.blocks > 0 && heap.most > 300 * 300 * 4 * 3, "tensors lie in the host's memory");
  check(lutra_tensor_empty(S, LUTRA_FLOAT32, 1, sizes, NULL, &kept) == LUTRA_OK, "a tensor of the API");
  check((size_t)lutra_tensor_data(kept) % 64 == 0, "is aligned");
  heap.limit = heap.bytes + 1000000;
  check(lutra_do_string(S, "return lt.ones(1000, 1000)", "=large") == LUTRA_ERROR_RUN ||
            strstr(lutra_error(S), "the host has no block") != NULL, "no block in a program");
  check(strstr(lutra_error(S), "out of memory: the host has no block of 4000000 bytes") != NULL, lutra_error(S));
  check(lutra_tensor_empty(S, LUTRA_FLOAT32, 1, large, NULL, &none) == LUTRA_ERROR_MEMORY && !none, "nor in the API");
  run(S, "local ok, e = pcall(lt.ones, 1000, 1000) assert(not ok and e:find 'out of memory', e)");
  run(S, "for i = 1, 100 do local t = lt.ones(100000) end"); /* garbage makes room */
  heap.limit = 0;
  run(S, "assert(lt.ones(1000, 1000):sum():item() == 1e6)");
  heap.shift = 8;
  run(S, "local ok, e = pcall(lt.ones, 10) assert(not ok and e:find 'not aligned to 64 bytes', e)");
  heap.shift = 0;
  lutra_close(S);
  check(heap.blocks == 1 && heap.bytes == 4000, "one block is left when the state is closed");
  lutra_tensor_free(kept);
  check(heap.blocks == 0 && heap.bytes == 0, "and comes back with its tensor");
}

static const char program[] =
    "lt.manual_seed(1) local x = lt.randn(700, 500) local net = lt.nn.Linear(500, 300)\n"
    "local f = lt.compile(function(x) return (net(x):gelu() * 2):softmax(1):sum(0) end)\n"
    "local y = f(x) y:sum():backward() local s = x:sort(0) local h = (x:view(-1) * 100):long():remainder(7)\n"
    "y = lt.cat({y:detach(), net.weight.grad:view(-1), s:view(-1), x:sum(0), lt.ones(7):index_add(0, h, x:view(-1))})\n"
    "function bits() return y end";

static lutra_Tensor* answer(lutra_State* S) {
  lutra_Tensor* y = NULL;
  lutra_Function* f = NULL;
  run(S, program);
  check(lutra_function(S, "bits", &f) == LUTRA_OK && lutra_invoke(f, NULL, 0, &y, 1) == LUTRA_OK, "bits");
  lutra_function_free(f);
  return y;
}

static void test_threads(void) {
  lutra_State* S = lutra_open(NULL);
  lutra_Tensor *plain = answer(S), *own;
  const size_t bytes = (size_t)lutra_tensor_numel(plain) * 4;
  Pool pools[3] = {{1, 0, 0}, {4, 0, 0}, {8, 0, 0}}, order = {3, 0, 0};
  lutra_Limits limits;
  int i;
  lutra_close(S);
  for (i = 0; i < 4; i++) {
    Pool* pool = i < 3 ? &pools[i] : &order;
    S = open_with(NULL, pool, i < 3 ? on_threads : backwards);
    own = answer(S);
    check(memcmp(lutra_tensor_data(plain), lutra_tensor_data(own), bytes) == 0, "bits do not depend on threads");
    check(pool->threads == 1 || pool->jobs > 0, "the host's threads ran tasks");
    run(S, "local ok, e = pcall(function() return lt.ones(100000)[lt.full({300000}, 100000, {dtype = 'int64'})] end)\n"
           "assert(not ok and e:find 'out of', e) assert(lt.ones(2000, 1000):sum():item() == 2e6)");
    memset(&limits, 0, sizeof limits);
    limits.size = sizeof limits, limits.seconds = 0.05;
    lutra_set_limits(S, &limits);
    check(lutra_do_string(S, "local x = lt.ones(2000, 500) while true do x = x:sin() end", "=loop") == LUTRA_ERROR_LIMIT,
          "a limit");
    lutra_set_limits(S, NULL);
    run(S, "assert(lt.ones(2000, 1000):sum():item() == 2e6)");
    lutra_tensor_free(own);
    lutra_close(S);
  }
  lutra_tensor_free(plain);
}

static void test_options(void) {
  Heap heap = {0, 0, 0, 0, 0, 0};
  Pool none = {0, 0, 0}, many = {256, 0, 0};
  lutra_Options options;
  check(!open_with(NULL, &none, on_threads) && strstr(lutra_error(NULL), "count of 1 to 255"), "no threads");
  check(!open_with(NULL, &many, on_threads) && strstr(lutra_error(NULL), "count of 1 to 255"), "too many threads");
  memset(&options, 0, sizeof options);
  options.size = sizeof options, options.allocator.allocate = give, options.allocator.arg = &heap;
  check(!lutra_open(&options) && strstr(lutra_error(NULL), "a function that frees"), "no function that frees");
}

int main(void) {
  test_memory();
  test_threads();
  test_options();
  return failures != 0;
}
