/* What embedding costs: opening a state, its memory, a call from C beside one from Lua, DLPack, limits. Minima of many
 * rounds, the two sides of a comparison in turn. `scripts/bench/embedding` builds and runs it. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/host/dlpack.h"
#include "vm/capi/lutra.h"

enum { kRounds = 40, kCalls = 2000, kSteps = 20, kStates = 64 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(lutra_State* S, int code) {
  if (code == LUTRA_OK) return;
  fprintf(stderr, "%d %s\n", code, lutra_error(S));
  exit(1);
}

static double least(double a, double b) { return a < b ? a : b; }

/* Memory that no file backs, in MB. */
static double own_memory(void) {
  char line[200];
  double kilobytes = 0;
  FILE* f = fopen("/proc/self/status", "r");
  while (f && fgets(line, sizeof line, f)) sscanf(line, "RssAnon: %lf", &kilobytes);
  if (f) fclose(f);
  return kilobytes / 1024;
}

static const char runs[] = "local f = lt.compile(function(x) return x * 2 + 1 end) f(lt.ones(8)) f(lt.ones(8))";

static void states(void) {
  lutra_State* all[kStates];
  const double before = own_memory();
  double opens = 1, first, memory[kStates];
  int i;
  first = now();
  for (i = 0; i < kStates; i++) {
    all[i] = lutra_open(NULL);
    if (!all[i]) exit(1);
    if (i == 0) first = now() - first;
    must(all[i], lutra_do_string(all[i], runs, "=runs"));
    memory[i] = own_memory();
  }
  for (i = 0; i < kStates; i++) lutra_close(all[i]);
  for (i = 0; i < kRounds; i++) {
    const double begin = now();
    lutra_State* S = lutra_open(NULL);
    opens = least(opens, now() - begin);
    lutra_close(S);
  }
  printf("a state opens in %.2f ms, the first of a process in %.2f ms\n", 1e3 * opens, 1e3 * first);
  printf("the first state and what the process keeps hold %.2f MB, the 64th %.2f MB (the mean of the last 32)\n",
         memory[0] - before, (memory[kStates - 1] - memory[kStates / 2 - 1]) / (kStates / 2));
}

static lutra_Function* function(lutra_State* S, const char* name) {
  lutra_Function* f = NULL;
  must(S, lutra_function(S, name, &f));
  return f;
}

static void limit(lutra_State* S, int yes) {
  lutra_Limits some;
  memset(&some, 0, sizeof some);
  some.size = sizeof some, some.seconds = 1000, some.bytes = (uint64_t)4 << 30;
  must(S, lutra_set_limits(S, yes ? &some : NULL));
}

static double call_many(lutra_State* S, lutra_Function* f, lutra_Tensor** in) {
  const double begin = now();
  int i;
  for (i = 0; i < kCalls; i++) {
    lutra_Tensor* out = NULL;
    must(S, lutra_invoke(f, in, 2, &out, 1));
    lutra_tensor_free(out);
  }
  return (now() - begin) / kCalls;
}

static void calls(lutra_State* S) {
  float data[2][8] = {{1}, {2}};
  int64_t size = 8;
  lutra_Tensor* in[2];
  lutra_Function *f, *loop;
  double c = 1, lua = 1, limited = 1, begin;
  int i, round;
  must(S, lutra_do_string(S,
                          "f = lt.compile(function(x, y) return x * y + 1 end)\n"
                          "function loop(x, y) for i = 1, 2000 do f(x, y) end end",
                          "=calls"));
  for (i = 0; i < 2; i++) {
    must(S, lutra_tensor_from_memory(S, data[i], LUTRA_FLOAT32, 1, &size, NULL, NULL, NULL, NULL, &in[i]));
  }
  f = function(S, "f"), loop = function(S, "loop");
  for (round = 0; round < kRounds; round++) {
    c = least(c, call_many(S, f, in));
    limit(S, 1);
    limited = least(limited, call_many(S, f, in));
    limit(S, 0);
    begin = now();
    must(S, lutra_invoke(loop, in, 2, NULL, 0));
    lua = least(lua, (now() - begin) / kCalls);
  }
  printf("a call of a compiled function with two tensors takes %.2f us from C, %.2f us from Lua: %.2f us more\n",
         1e6 * c, 1e6 * lua, 1e6 * (c - lua));
  printf("with limits of time and memory it takes %.2f us more\n", 1e6 * (limited - c));
  lutra_function_free(f), lutra_function_free(loop);
  lutra_tensor_free(in[0]), lutra_tensor_free(in[1]);
}

static void nothing(struct DLManagedTensorVersioned* m) { (void)m; }

static void dlpack(lutra_State* S) {
  static float data[8];
  static int64_t size = 8, stride = 1;
  struct DLManagedTensorVersioned ours, *theirs;
  lutra_Tensor *t = NULL, *taken;
  double in = 1, out = 1, begin;
  int i, round;
  memset(&ours, 0, sizeof ours);
  ours.major = 1, ours.deleter = nothing;
  ours.dl_tensor.data = data, ours.dl_tensor.device.device_type = 1, ours.dl_tensor.ndim = 1;
  ours.dl_tensor.dtype.code = 2, ours.dl_tensor.dtype.bits = 32, ours.dl_tensor.dtype.lanes = 1;
  ours.dl_tensor.shape = &size, ours.dl_tensor.strides = &stride;
  must(S, lutra_tensor_empty(S, LUTRA_FLOAT32, 1, &size, NULL, &t));
  for (round = 0; round < kRounds; round++) {
    begin = now();
    for (i = 0; i < kCalls; i++) {
      must(S, lutra_tensor_from_dlpack(S, &ours, &taken));
      lutra_tensor_free(taken);
    }
    in = least(in, (now() - begin) / kCalls);
    begin = now();
    for (i = 0; i < kCalls; i++) {
      must(S, lutra_tensor_to_dlpack(t, &theirs));
      theirs->deleter(theirs);
    }
    out = least(out, (now() - begin) / kCalls);
  }
  printf("DLPack: import and release take %.2f us, export and release %.2f us\n", 1e6 * in, 1e6 * out);
  lutra_tensor_free(t);
}

static void limits(lutra_State* S) {
  lutra_Function* step;
  double times[2] = {1, 1};
  int i, limited;
  must(S, lutra_do_string(S,
                          "local net = lt.nn.Sequential(lt.nn.Linear(784, 256), lt.nn.ReLU(), lt.nn.Linear(256, 10))\n"
                          "local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-3})\n"
                          "local x, y = lt.randn(128, 784), lt.randint(0, 10, {128})\n"
                          "local one = lt.compile(function()\n"
                          "  local loss = lt.nn.functional.cross_entropy(net(x), y)\n"
                          "  opt:zero_grad() loss:backward() opt:step() return loss end)\n"
                          "function step() one() end",
                          "=steps"));
  step = function(S, "step");
  for (i = -kSteps; i < kRounds * kSteps; i++) {
    for (limited = 0; limited < 2; limited++) {
      double begin;
      limit(S, limited);
      begin = now();
      must(S, lutra_invoke(step, NULL, 0, NULL, 0));
      if (i >= 0) times[limited] = least(times[limited], now() - begin);
    }
  }
  limit(S, 0);
  printf("a train step takes %.3f ms, with limits %.3f ms: %+.2f %%\n", 1e3 * times[0], 1e3 * times[1],
         100 * (times[1] / times[0] - 1));
  lutra_function_free(step);
}

int main(void) {
  lutra_State* S;
  states();
  S = lutra_open(NULL);
  calls(S);
  dlpack(S);
  limits(S);
  lutra_close(S);
  return 0;
}
