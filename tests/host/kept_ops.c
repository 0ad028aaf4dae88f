/* Ops of a host in processes that share kept code: one after the other, with the op, without it, with other versions of
 * it. Each child opens a state, runs one program, and tells by its status whether all was as it should be. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/host/check.h"
#include "vm/capi/lutra.h"

/* y[i] = factor * x[i % size of x]. */
static int scale(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* out, int m) {
  const float* x = lutra_tensor_data(in[0].as.tensor);
  float* y = lutra_tensor_data(out[0]);
  int64_t i;
  (void)S, (void)n, (void)m;
  for (i = 0; i < lutra_tensor_numel(out[0]); i++) y[i] = *(float*)arg * x[i % lutra_tensor_numel(in[0].as.tensor)];
  return LUTRA_OK;
}

static int twice_as_long(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Shape* out, int m) {
  (void)S, (void)arg, (void)in, (void)n, (void)m;
  out[0].sizes[0] *= 2;
  return LUTRA_OK;
}

static int as_doubles(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Shape* out, int m) {
  (void)S, (void)arg, (void)in, (void)n, (void)m;
  out[0].dtype = LUTRA_FLOAT64;
  return LUTRA_OK;
}

static int double_kernel(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* out, int m) {
  int64_t i;
  (void)S, (void)n, (void)m;
  for (i = 0; i < lutra_tensor_numel(out[0]); i++)
    ((double*)lutra_tensor_data(out[0]))[i] = *(float*)arg * (double)((float*)lutra_tensor_data(in[0].as.tensor))[i];
  return LUTRA_OK;
}

static int gradient(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* results,
                    lutra_Tensor* const* gradients, int m, lutra_Tensor* const* out) {
  int64_t i;
  (void)S, (void)in, (void)n, (void)results, (void)m;
  for (i = 0; i < lutra_tensor_numel(out[0]); i++)
    ((float*)lutra_tensor_data(out[0]))[i] = *(float*)arg * ((float*)lutra_tensor_data(gradients[0]))[i];
  return LUTRA_OK;
}

static const char forward[] =
    "local f = lt.compile(function(x) return (lt.ops.times(x) + 1):exp():log() end)\n"
    "y = f(lt.tensor {1, 2, 3}):round()";
static const char train[] =
    "local w = lt.ones(3, {requires_grad = true})\n"
    "local f = lt.compile(function(x) local loss = (lt.ops.times(w) * x):sum() loss:backward() return loss end)\n"
    "f(lt.tensor {1, 2, 3}) y = w.grad";

typedef struct Version {
  const char *what, *schema, *program;
  float factor;
  lutra_OpCallbacks rules;
  int sandbox, code;   /* how the program ends */
  const char* holds;   /* afterwards: of y, and hits and misses of the disk */
} Version;

/* In a process of its own. */
static int live(Version* v) {
  lutra_Options options;
  lutra_State* S;
  int code;
  memset(&options, 0, sizeof options);
  options.size = sizeof options, options.sandbox = v->sandbox;
  S = lutra_open(&options);
  v->rules.size = sizeof v->rules, v->rules.arg = &v->factor;
  if (v->schema && lutra_register_op(S, v->schema, &v->rules) != LUTRA_OK) return fputs(lutra_error(S), stderr), 1;
  code = lutra_do_string(S, v->program, "=program");
  if (code != v->code) return fprintf(stderr, "%d %s\n", code, lutra_error(S)), 1;
  if (code && !strstr(lutra_error(S), v->holds)) return fprintf(stderr, "%s\n", lutra_error(S)), 1;
  if (!code && lutra_do_string(S, "c = lt.counters().disk_cache hits, misses = c.hits, c.misses", "=counters") == LUTRA_OK)
    code = lutra_do_string(S, v->holds, "=holds");
  if (!v->code && code) return fprintf(stderr, "%s\n", lutra_error(S)), 1;
  lutra_close(S);
  return 0;
}

static void in_a_process(Version* v) {
  int status = -1;
  const pid_t child = fork();
  if (child == 0) _exit(live(v));
  check(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, v->what);
}

#define RULES(shape, kernel, gradient) {0, shape, kernel, gradient, NULL}
#define ONE "times(Tensor x) -> Tensor"
#define IS(list) "assert(lt.equal(y, lt.tensor " list "), tostring(y)) "

int main(void) {
  static Version versions[] = {
      {"the first compiles", ONE, forward, 2, RULES(NULL, scale, NULL), 0, 0, IS("{3, 5, 7}") "assert(hits == 0 and misses > 0)"},
      {"the second takes it", ONE, forward, 2, RULES(NULL, scale, NULL), 0, 0, IS("{3, 5, 7}") "assert(hits > 0 and misses == 0)"},
      {"without the op", NULL, forward, 0, RULES(NULL, NULL, NULL), 0, LUTRA_ERROR_RUN, "times"},
      {"another kernel", ONE, forward, 3, RULES(NULL, scale, NULL), 0, 0, IS("{4, 7, 10}") "assert(hits > 0 and misses == 0)"},
      {"another shape", ONE, forward, 2, RULES(twice_as_long, scale, NULL), 0, 0, IS("{3, 5, 7, 3, 5, 7}") "assert(hits == 0)"},
      {"another dtype", ONE, forward, 2, RULES(as_doubles, double_kernel, NULL), 0, 0,
       "assert(y.dtype == 'float64' and y:sum():item() == 15) assert(hits == 0)"},
      {"another schema", "times(Tensor x, int k=1) -> Tensor", forward, 5, RULES(NULL, scale, NULL), 0, 0,
       IS("{6, 11, 16}") "assert(hits == 0)"},
      {"in a sandbox", ONE, forward, 2, RULES(NULL, scale, NULL), 1, 0, IS("{3, 5, 7}")},
      {"no gradient", ONE, train, 2, RULES(NULL, scale, NULL), 0, LUTRA_ERROR_RUN, "times"},
      {"a gradient", ONE, train, 2, RULES(NULL, scale, gradient), 0, 0, IS("{2, 4, 6}") "assert(misses > 0)"},
      {"a kept gradient", ONE, train, 2, RULES(NULL, scale, gradient), 0, 0, IS("{2, 4, 6}") "assert(hits > 0 and misses == 0)"},
      {"another gradient", ONE, train, 3, RULES(NULL, scale, gradient), 0, 0, IS("{3, 6, 9}") "assert(hits > 0)"},
      {"no gradient any more", ONE, train, 2, RULES(NULL, scale, NULL), 0, LUTRA_ERROR_RUN, "times"},
      {"the first again", ONE, forward, 2, RULES(NULL, scale, NULL), 0, 0, IS("{3, 5, 7}") "assert(hits > 0 and misses == 0)"},
  };
  char folder[] = "/tmp/lutra_kept_ops_XXXXXX", command[64];
  size_t i;
  if (!mkdtemp(folder)) return 1;
  setenv("LUTRA_CACHE_DIR", folder, 1), setenv("LUTRA_CACHE", "on", 1);
  for (i = 0; i < sizeof versions / sizeof *versions; i++) in_a_process(&versions[i]);
  sprintf(command, "rm -rf %s", folder);
  check(system(command) == 0, "the folder is removed");
  return failures;
}
