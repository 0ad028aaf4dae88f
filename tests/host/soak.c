/* 64 states in 16 threads: opened with settings of their own, run, trained, limited, interrupted by other threads and
 * closed again and again; code is compiled in the background and kept on disk, tensors go from thread to thread, as
 * they are and by DLPack. Answers stay right and memory flat. Two seconds, LUTRA_TEST_SCALE times as long; with
 * LUTRA_TEST_SECONDS so many, and a line of the memory every ten:
 *
 *   LUTRA_TEST_SECONDS=3600 build/release/tests/lutra-soak
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/host/check.h"
#include "tests/host/dlpack.h"
#include "vm/capi/lutra.h"

enum { kThreads = 16, kStates = 4, kMaxSamples = 10000 };

static double end;
static long lives, squares, handed, crossed, interrupts, timeouts, overflows;
static lutra_Tensor* hand;                        /* what a thread leaves for another one */
static struct DLManagedTensorVersioned* parcel; /* the same by DLPack */
static lutra_State* busy[kThreads]; /* runs what ends only by an interrupt */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long seen(const long* number) { return __atomic_load_n(number, __ATOMIC_RELAXED); }

static int each_was_seen(void) {
  return seen(&squares) && seen(&handed) && seen(&interrupts) && seen(&crossed) && seen(&timeouts) && seen(&overflows);
}

/* A short soak of a slow build takes up to a minute longer to see each kind. */
static int goes_on(void) { return now() < end || (now() < end + 60 && !each_was_seen()); }

static long resident_pages(void) {
  long size = 0, resident = 0;
  FILE* f = fopen("/proc/self/statm", "r");
  if (!f || fscanf(f, "%ld %ld", &size, &resident) != 2) resident = 0;
  if (f) fclose(f);
  return resident;
}

static const char program[] =
    "local net = lt.nn.Linear(4, 3)\n"
    "f = lt.compile(function(x) return lt.ops.square((x * 2 + 1):relu()) end)\n"
    "large = lt.compile(function() return lt.full({40000}, 6) * 8 + 1 end)\n"
    "function train() local x = lt.randn(8, 4) local loss = (net(x) ^ 2):sum() loss:backward() return loss end\n"
    "for i = 1, 3 do train() end";
static const char learner[] =
    "function fill() local t = {} for i = 1, 1e6 do t[i] = lt.ones(1000 * i) end end\n"
    "local deep = lt.nn.Sequential(lt.nn.Linear(6, 8), lt.nn.Tanh(), lt.nn.Linear(8, 2))\n"
    "local opt = lt.optim.AdamW(deep:parameters(), {lr = 1e-2})\n"
    "step = lt.compile(function(x)\n"
    "  opt:zero_grad() local loss = (deep(x) - 1):square():mean() loss:backward() opt:step() return loss end)\n"
    "function learn()\n"
    "  local x, first, last = lt.ones(4, 6)\n"
    "  for i = 1, 30 do last = step(x):item() first = first or last end\n"
    "  assert(last < 2) end";

static void expect(lutra_State* S, int code, const char* what) {
  if (code == LUTRA_OK) return;
  __sync_fetch_and_add(&failures, 1);
  fprintf(stderr, "FAILED %s: %d %s\n", what, code, lutra_error(S));
}

static int square(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* out, int m) {
  const float* x = lutra_tensor_data(in[0].as.tensor);
  float* y = lutra_tensor_data(out[0]);
  int64_t i;
  (void)S, (void)n, (void)m;
  for (i = 0; i < lutra_tensor_numel(out[0]); i++) y[i] = x[i] * x[i];
  __sync_fetch_and_add((long*)arg, 1);
  return LUTRA_OK;
}

static void add_op(lutra_State* S) {
  lutra_OpCallbacks rules;
  memset(&rules, 0, sizeof rules);
  rules.size = sizeof rules, rules.kernel = square, rules.arg = &squares;
  expect(S, lutra_register_op(S, "square(Tensor x) -> Tensor", &rules), "an op");
}

/* Leaves t, whose elements are all 49, and takes what another thread has left. */
static void hand_over(lutra_Tensor* t) {
  lutra_Tensor* other = __atomic_exchange_n(&hand, t, __ATOMIC_ACQ_REL);
  const float* x;
  if (!other) return;
  x = lutra_tensor_data(other);
  if (x[0] != 49 || x[lutra_tensor_numel(other) - 1] != 49) __sync_fetch_and_add(&failures, 1);
  lutra_tensor_free(other);
  __sync_fetch_and_add(&handed, 1);
}

/* The same by DLPack, into S. */
static void send(lutra_State* S, lutra_Tensor* t) {
  struct DLManagedTensorVersioned *mine = NULL, *other;
  lutra_Tensor* from_other = NULL;
  expect(S, lutra_tensor_to_dlpack(t, &mine), "to DLPack");
  lutra_tensor_free(t);
  other = __atomic_exchange_n(&parcel, mine, __ATOMIC_ACQ_REL);
  if (!other) return;
  expect(S, lutra_tensor_from_dlpack(S, other, &from_other), "from DLPack");
  if (!from_other) return;
  hand_over(from_other);
  __sync_fetch_and_add(&crossed, 1);
}

static void large(lutra_State* S, int by_dlpack) {
  lutra_Function* f = NULL;
  lutra_Tensor* t = NULL;
  expect(S, lutra_function(S, "large", &f), "large");
  expect(S, lutra_invoke(f, NULL, 0, &t, 1), "a large call");
  lutra_function_free(f);
  if (t && by_dlpack) send(S, t);
  if (t && !by_dlpack) hand_over(t);
}

/* Is ended by whoever sees it in `busy`. */
static void wait_for_an_end(lutra_State* S, int thread) {
  __atomic_store_n(&busy[thread], S, __ATOMIC_RELEASE);
  if (lutra_do_string(S, "while true do lt.ones(3):sum() end", "=busy") != LUTRA_ERROR_LIMIT) {
    __sync_fetch_and_add(&failures, 1);
    fprintf(stderr, "FAILED an interrupt: %s\n", lutra_error(S));
  }
  __atomic_store_n(&busy[thread], (lutra_State*)NULL, __ATOMIC_RELEASE);
}

static volatile int done;
static void* interrupt_all(void* arg) {
  while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
    struct timespec pause;
    int i;
    pause.tv_sec = 0, pause.tv_nsec = 2000000;
    nanosleep(&pause, NULL);
    for (i = 0; i < kThreads; i++) {
      lutra_State* S = __atomic_load_n(&busy[i], __ATOMIC_ACQUIRE);
      if (S) lutra_interrupt(S), __sync_fetch_and_add(&interrupts, 1);
    }
  }
  return arg;
}

/* A program that ends by a limit, of time or of memory. */
static void limit(lutra_State* S, unsigned* seed) {
  const int fills = rand_r(seed) % 2;
  const char* text = fills ? "fill()" : rand_r(seed) % 2 ? "while true do train() end" : "while true do learn() end";
  lutra_Limits limits;
  memset(&limits, 0, sizeof limits);
  limits.size = sizeof limits, limits.seconds = fills ? 0 : 0.002, limits.bytes = (fills ? 16 : 64) << 20;
  expect(S, lutra_set_limits(S, &limits), "limits");
  if (lutra_do_string(S, text, "=loop") != LUTRA_ERROR_LIMIT) {
    __sync_fetch_and_add(&failures, 1);
    fprintf(stderr, "FAILED a limit: %s\n", lutra_error(S));
  }
  expect(S, lutra_set_limits(S, NULL), "no limits");
  if (fills) expect(S, lutra_do_string(S, "collectgarbage()", "=free"), "freed");
  __sync_fetch_and_add(fills ? &overflows : &timeouts, 1);
}

static void use(lutra_State* S, unsigned* seed, int thread) {
  float data[4] = {1, -2, 3, -4};
  int64_t sizes[1] = {4};
  lutra_Tensor *x = NULL, *y = NULL;
  lutra_Function* f = NULL;
  expect(S, lutra_tensor_from_memory(S, data, LUTRA_FLOAT32, 1, sizes, NULL, NULL, NULL, NULL, &x), "a tensor");
  expect(S, lutra_function(S, "f", &f), "f");
  expect(S, lutra_invoke(f, &x, 1, &y, 1), "a call");
  if (y && ((float*)lutra_tensor_data(y))[2] != 49) __sync_fetch_and_add(&failures, 1);
  lutra_tensor_free(x), lutra_tensor_free(y), lutra_function_free(f);
  expect(S, lutra_do_string(S, "train() train()", "=train"), "training");
  if (rand_r(seed) % 4 == 0) expect(S, lutra_do_string(S, "learn()", "=learn"), "learning");
  if (rand_r(seed) % 4 == 0) limit(S, seed);
  if (rand_r(seed) % 4 == 0) large(S, rand_r(seed) % 2);
  if (rand_r(seed) % 8 == 0) wait_for_an_end(S, thread);
}

static lutra_State* open_one(unsigned* seed) {
  static const char* const caches[] = {"on", "read", "off", NULL};
  static const char* const threads[] = {"", "lt.set_num_threads(2)", "lt.set_num_threads(3)"};
  lutra_Options options;
  lutra_State* S;
  memset(&options, 0, sizeof options);
  options.size = sizeof options, options.sandbox = rand_r(seed) % 2, options.cache = caches[rand_r(seed) % 4];
  S = lutra_open(&options);
  if (!S) {
    __sync_fetch_and_add(&failures, 1);
    fprintf(stderr, "FAILED to open: %s\n", lutra_error(NULL));
    return NULL;
  }
  add_op(S);
  if (!options.sandbox) {
    expect(S, lutra_do_string(S, threads[rand_r(seed) % 3], "=threads"), "threads");
    if (rand_r(seed) % 2) expect(S, lutra_do_string(S, "lt.config.async = true", "=async"), "async");
  }
  expect(S, lutra_do_string(S, program, "=program"), "the program");
  expect(S, lutra_do_string(S, learner, "=learner"), "the learner");
  return S;
}

static void* live(void* arg) {
  unsigned seed = (unsigned)(size_t)arg;
  lutra_State* states[kStates];
  int i;
  for (i = 0; i < kStates; i++) {
    states[i] = open_one(&seed);
    __sync_fetch_and_add(&lives, 1);
  }
  while (goes_on()) {
    lutra_State** S = &states[rand_r(&seed) % kStates];
    if (*S && rand_r(&seed) % 3 == 0) {
      lutra_close(*S);
      *S = NULL;
    } else if (!*S) {
      *S = open_one(&seed);
      __sync_fetch_and_add(&lives, 1);
    }
    if (*S) use(*S, &seed, (int)(size_t)arg - 1);
  }
  for (i = 0; i < kStates; i++) lutra_close(states[i]);
  return NULL;
}

static double samples[kMaxSamples]; /* resident MB */
static int count;

/* One at the end of each tenth of a short soak, every ten seconds of a long one. What malloc keeps free in its arenas
 * is its own affair: it is given back before. */
static void watch(double seconds) {
  const double begin = now(), step = seconds > 100 ? 10 : seconds / 10;
  for (count = 0; count < kMaxSamples && now() < end; count++) {
    const double pause = begin + (count + 1) * step - now();
    if (pause > 0) usleep((unsigned)(1e6 * pause));
    malloc_trim(0);
    samples[count] = (double)resident_pages() * (double)sysconf(_SC_PAGESIZE) / 1e6;
    printf("%5.1f s, %.1f MB: %ld lives, %ld tensors handed over and %ld by DLPack, %ld interrupts, %ld + %ld limits\n",
           now() - begin, samples[count], seen(&lives), seen(&handed), seen(&crossed), seen(&interrupts),
           seen(&timeouts), seen(&overflows));
    fflush(stdout);
  }
}

static double mean(int from, int to) {
  double sum = 0;
  int i;
  for (i = from; i < to; i++) sum += samples[i];
  return sum / (to - from);
}

static void soak(double seconds) {
  pthread_t threads[kThreads], interrupter;
  size_t i;
  end = now() + seconds;
  pthread_create(&interrupter, NULL, interrupt_all, NULL);
  for (i = 0; i < kThreads; i++) pthread_create(&threads[i], NULL, live, (void*)(i + 1));
  watch(seconds);
  for (i = 0; i < kThreads; i++) pthread_join(threads[i], NULL);
  __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
  pthread_join(interrupter, NULL);
}

int main(void) {
  const char *scale = getenv("LUTRA_TEST_SCALE"), *asked = getenv("LUTRA_TEST_SECONDS");
  const double seconds = asked ? atof(asked) : 2 * (scale ? atof(scale) : 1);
  char folder[] = "/tmp/lutra_soak_XXXXXX", command[64];
  if (!mkdtemp(folder)) return 1;
  setenv("LUTRA_CACHE_DIR", folder, 1);
  soak(seconds);
  lutra_tensor_free(hand);
  if (parcel) parcel->deleter(parcel);
  sprintf(command, "rm -rf %s", folder);
  check(system(command) == 0, "the folder is removed");
  check(squares > 0 && handed > 0 && interrupts > 0, "ops of the host ran, tensors were handed over, loops interrupted");
  check(crossed > 0 && timeouts > 0 && overflows > 0, "tensors crossed by DLPack, both limits were hit");
  if (count >= 8) {
    const double early = mean(count / 4, count / 2), late = mean(3 * count / 4, count);
    printf("%.1f MB in the second quarter, %.1f in the last, %d failures\n", early, late, failures);
    check(late < early * 1.25 + 16, "memory grows");
    if (seconds >= 600) check(late < early * 1.05, "memory is not flat");
  }
  return failures != 0;
}
