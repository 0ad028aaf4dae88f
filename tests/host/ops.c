/* A host in C with ops of its own: shape rule, kernel, gradient; in eager and compiled code; misuse. */
#include <stdlib.h>

#include "tests/host/check.h"
#include "vm/capi/lutra.h"

static void expect(lutra_State* S, int code, const char* what) {
  check(code == LUTRA_OK, what);
  if (code != LUTRA_OK) fprintf(stderr, "  %d %s\n", code, lutra_error(S));
}

static void run(lutra_State* S, const char* program) { expect(S, lutra_do_string(S, program, "=test"), program); }

typedef struct Calls {
  int shapes, kernels, gradients;
  lutra_Tensor* kept;
} Calls;

/* blend(Tensor a, Tensor b, float t=0.5): a + (b - a) * t, elementwise. */
static int blend_shape(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Shape* out, int m) {
  int d;
  ((Calls*)arg)->shapes++;
  check(n == 3 && m == 1 && in[2].kind == LUTRA_NIL, "a shape rule knows no floats");
  check(lutra_tensor_data(in[0].as.tensor) == NULL, "and no elements");
  if (lutra_tensor_dtype(in[0].as.tensor) != LUTRA_FLOAT32) return lutra_fail(S, "only float32 is blended");
  for (d = 0; d < out->ndim; d++) {
    if (lutra_tensor_ndim(in[1].as.tensor) != out->ndim ||
        lutra_tensor_sizes(in[1].as.tensor)[d] != lutra_tensor_sizes(in[0].as.tensor)[d])
      return lutra_fail(S, "a and b differ in their sizes");
  }
  return LUTRA_OK;
}

static int blend(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* out, int m) {
  const float *a = lutra_tensor_data(in[0].as.tensor), *b = lutra_tensor_data(in[1].as.tensor);
  float* y = lutra_tensor_data(out[0]);
  int64_t i;
  (void)S;
  ((Calls*)arg)->kernels++;
  check(n == 3 && m == 1 && in[2].kind == LUTRA_NUMBER, "a kernel's inputs");
  check(lutra_tensor_strides(in[0].as.tensor)[lutra_tensor_ndim(in[0].as.tensor) - 1] == 1, "are contiguous");
  for (i = 0; i < lutra_tensor_numel(out[0]); i++) y[i] = a[i] + (b[i] - a[i]) * (float)in[2].as.number;
  return LUTRA_OK;
}

static int blend_gradient(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* results,
                          lutra_Tensor* const* gradients, int m, lutra_Tensor* const* out) {
  const float* g = lutra_tensor_data(gradients[0]);
  const double t = in[2].as.number;
  int64_t i;
  int k;
  (void)S, (void)n, (void)results;
  ((Calls*)arg)->gradients++;
  check(m == 1 && lutra_tensor_numel(results[0]) == lutra_tensor_numel(gradients[0]), "results and their gradients");
  for (k = 0; k < 2; k++) {
    for (i = 0; out[k] && i < lutra_tensor_numel(out[k]); i++)
      ((float*)lutra_tensor_data(out[k]))[i] = g[i] * (float)(k ? t : 1 - t);
  }
  return LUTRA_OK;
}

/* image::stats(Tensor[] xs, Tensor? w, int k, int[] dims, bool up, str mode) -> (Tensor, Tensor) */
static int stats_shape(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Shape* out, int m) {
  (void)S, (void)arg;
  check(n == 6 && m == 2 && in[0].kind == LUTRA_TABLE && in[4].kind == LUTRA_BOOLEAN, "six inputs, two results");
  out[0].ndim = 1, out[0].sizes[0] = in[2].as.integer;
  out[1].ndim = 0, out[1].dtype = LUTRA_INT64;
  return LUTRA_OK;
}

static int stats(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* out, int m) {
  float* y = lutra_tensor_data(out[0]);
  int64_t i, sum = 0;
  size_t k;
  (void)arg, (void)n, (void)m;
  if (strcmp(in[5].as.string, "a\n'b'")) return lutra_fail(S, "the mode is lost");
  for (k = 0; k < in[0].length; k++) sum += lutra_tensor_numel(in[0].as.values[k].as.tensor);
  for (k = 0; k < in[3].length; k++) sum += 1000 * in[3].as.integers[k];
  for (i = 0; i < in[2].as.integer; i++) y[i] = (float)(i + (in[1].kind == LUTRA_TENSOR) * 10 + in[4].as.boolean * 100);
  *(int64_t*)lutra_tensor_data(out[1]) = sum;
  return LUTRA_OK;
}

/* bad(Tensor x, int how): every way to be wrong. */
static int bad_shape(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Shape* out, int m) {
  (void)arg, (void)n, (void)m;
  switch (in[1].as.integer) {
    case 0: return 77;
    case 1: out->dtype = 99; break;
    case 2: out->dtype = LUTRA_COMPLEX64; break;
    case 3: out->ndim = 17; break;
    case 4: out->ndim = -1; break;
    case 5: out->sizes[0] = -5; break;
    case 6: out->ndim = 2, out->sizes[0] = out->sizes[1] = (int64_t)1 << 40; break;
    case 7: return lutra_do_string(S, "x = 1", "=within");
    case 8: out->sizes[0] = (int64_t)1 << 45; break;
    default: break;
  }
  return LUTRA_OK;
}

static int bad(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* out, int m) {
  Calls* calls = arg;
  lutra_Tensor *x = in[0].as.tensor, *y = NULL;
  (void)n, (void)out, (void)m;
  if (in[1].as.integer == 10) return lutra_fail(S, "no such luck");
  if (in[1].as.integer == 11) return 55;
  if (in[1].as.integer == 12) calls->kept = lutra_tensor_retain(x);
  if (in[1].as.integer != 13) return LUTRA_OK;
  check(lutra_do_string(S, "y = 1", "=within") == LUTRA_ERROR_STATE, "no programs within a kernel");
  check(strstr(lutra_error(NULL), "must not use the state") != NULL, "that is told");
  check(lutra_op(S, "neg", &x, 1, &y, 1) == LUTRA_ERROR_STATE && !y, "no ops within a kernel");
  check(lutra_register(S, "f", NULL, NULL) == LUTRA_ERROR_STATE, "no functions within a kernel");
  lutra_close(S); /* does nothing */
  return LUTRA_OK;
}

static void add(lutra_State* S, const char* schema, int (*shape)(lutra_State*, void*, const lutra_Value*, int, lutra_Shape*, int),
                int (*kernel)(lutra_State*, void*, const lutra_Value*, int, lutra_Tensor* const*, int), void* arg) {
  lutra_OpCallbacks rules;
  memset(&rules, 0, sizeof rules);
  rules.size = sizeof rules, rules.shape = shape, rules.kernel = kernel, rules.arg = arg;
  if (kernel == blend) rules.gradient = blend_gradient;
  expect(S, lutra_register_op(S, schema, &rules), schema);
}

static void test_eager(lutra_State* S, Calls* calls) {
  run(S, "local a, b = lt.tensor({1, 2}), lt.tensor({3, 6}) local y = lt.ops.blend(a, b)\n"
         "assert(y:equal(lt.tensor({2, 4}))) assert(lt.ops.blend(a, b, 0.25):equal(lt.tensor({1.5, 3})))\n"
         "assert(lt.ops.blend{a = a, b = b, t = 1}:equal(b))");
  check(calls->kernels == 3 && calls->shapes == 3, "calls of rules");
  run(S, "local a = lt.arange(6):float():view(2, 3):t() local b = lt.ones(1, 1):expand(3, 2)\n"
         "assert(lt.ops.blend(a, b, 0):equal(a) and lt.ops.blend(a, b, 1):equal(b))");
  run(S, "assert(lt.ops.blend(lt.ones(0, 3), lt.ones(0, 3)).shape[2] == 3)");
  run(S, "local a = lt.tensor({1, 2}, {requires_grad = true}) local b = lt.tensor({3, 6}, {requires_grad = true})\n"
         "lt.ops.blend(a, b, 0.25):sum():backward()\n"
         "assert(a.grad:equal(lt.tensor({0.75, 0.75})) and b.grad:equal(lt.tensor({0.25, 0.25})))\n"
         "local y = lt.ops.blend(a * 2, b:detach(), 0.5)\n"
         "local g = lt.grad(y:sum(), a, {create_graph = true}) assert(g:equal(lt.tensor({1, 1})))\n"
         "local ok, e = pcall(lt.grad, g:sum(), a)\n"
         "assert(not ok and e:find 'blend: its gradient has no gradient', e)");
  check(calls->gradients == 2, "calls of the gradient");
}

static void test_compiled(lutra_State* S, Calls* calls) {
  int shapes;
  run(S, "function f(a, b, t) local y = lt.ops.blend(a * 2, b + 1, t) return y:relu() + 1 end\n"
         "cf = lt.compile(f, {fullgraph = true})\n"
         "for i = 1, 4 do local a, b = lt.randn(3, 4), lt.randn(3, 4) assert(cf(a, b, i / 4):equal(f(a, b, i / 4))) end\n"
         "local r = lt.explain(f)(lt.ones(2), lt.ones(2), 0.5)\n"
         "assert(r.graph_count == 1 and r.graph_break_count == 0)\n"
         "assert(tostring(r):find 'host_op' or r.op_count > 2)");
  shapes = calls->shapes;
  run(S, "for i = 1, 5 do cf(lt.ones(3, 4), lt.ones(3, 4), i) end assert(#lt.recompiles(cf) == 0)");
  check(calls->shapes == shapes, "a compiled call asks no shape rule");
  run(S, "for n = 1, 3 do local a, b = lt.randn(n, 2):t(), lt.randn(2, n) assert(cf(a, b, 0.5):equal(f(a, b, 0.5))) end");
  run(S, "local function step(w, x) local loss = lt.ops.blend(w * x, x, 0.5):sin():sum()\n"
         "return lt.grad(loss, w) end\n"
         "local c, w, x = lt.compile(step), lt.randn(5, {requires_grad = true}), lt.randn(5)\n"
         "for i = 1, 3 do assert(c(w, x):equal(step(w, x))) end");
  run(S, "local w = lt.randn(4, {requires_grad = true})\n"
         "local c = lt.compile(function(w) return lt.ops.blend(w * 2, w, 0.25) * 3 end)\n"
         "for i = 1, 3 do w.grad = nil c(w):sum():backward() local g = w.grad w.grad = nil\n"
         "(lt.ops.blend(w * 2, w, 0.25) * 3):sum():backward() assert(g:equal(w.grad)) end");
  run(S, "local c = lt.compile(function(x) lt.ops.bad(x, 10) return x end)\n"
         "for i = 1, 3 do local ok, e = pcall(c, lt.ones(2)) assert(not ok and e:find 'bad: no such luck', e) end");
}

static void test_stats(lutra_State* S) {
  run(S, "local function f(x, k) return lt.ops.image.stats({x, x + 1}, nil, k, {2, 3}, true, {mode = \"a\\n'b'\"}) end\n"
         "local a, b = f(lt.ones(3), 4) assert(a:equal(lt.tensor({100, 101, 102, 103})) and b:item() == 5006)\n"
         "local c = lt.compile(function(x, k) local a, b = f(x * 2, k) return a + 1, b end, {fullgraph = true})\n"
         "for k = 2, 4 do local a, b = c(lt.ones(3), k) assert(a:numel() == k and a[1]:item() == 102 and b:item() == 5006) end");
  run(S, "assert(lt.ops.image.stats({lt.ones(1)}, lt.ones(1), 2, 7, false, {mode = \"a\\n'b'\"})[0]:item() == 10)");
  run(S, "local x = lt.ones(3, {requires_grad = true})\n"
         "local a = lt.ops.image.stats({x}, nil, 2, {}, false, {mode = \"a\\n'b'\"})\n"
         "local ok, e = pcall(function() a:sum():backward() end) assert(not ok and e:find 'stats: has no gradient', e)");
}

static void test_errors(lutra_State* S, Calls* calls) {
  static const char* const told[] = {"the host.s shape rule failed with code 77", "dtype 99", "complex64", "17 dimensions",
                                     "%-1 dimensions", "the size %-5", "overflow", "failed with code 7", "memory", "",
                                     "no such luck", "failed with code 55"};
  char text[300];
  int i;
  for (i = 0; i < (int)(sizeof told / sizeof *told); i++) {
    if (!told[i][0]) continue;
    sprintf(text, "local ok, e = pcall(lt.ops.bad, lt.ones(3), %d) assert(not ok and e:find 'bad' and e:find '%s', e)", i,
            told[i]);
    if (i == 8) sprintf(text, "assert(not pcall(lt.ops.bad, lt.ones(3), 8))");
    run(S, text);
  }
  run(S, "lt.ops.bad(lt.ones(3), 12)");
  check(calls->kept && lutra_tensor_data(calls->kept) == NULL && lutra_tensor_ndim(calls->kept) == 1,
        "a tensor that the host kept has no memory");
  lutra_tensor_free(calls->kept);
  run(S, "lt.ops.bad(lt.ones(3), 13) assert(x == nil and y == nil)");
  run(S, "for _, t in ipairs {'float8_e4m3fn', 'complex64', 'uint16'} do local x = lt.ones(2):to(t)\n"
         "for _, f in ipairs {lt.ops.blend, lt.compile(function(a, b) return lt.ops.blend(a, b) end)} do\n"
         "local ok, e = pcall(f, lt.ones(2), x)\n"
         "assert(not ok and e:find(\"blend: argument 'b': not defined for \" .. t .. ', which', 1, true), e)\n"
         "ok, e = pcall(lt.ops.image.stats, {lt.ones(2), x}, nil, 1, 1, true)\n"
         "assert(not ok and e:find(\"stats: argument 'xs': not defined for \" .. t, 1, true), e) end end");
  run(S, "local ok, e = pcall(lt.ops.blend, lt.ones(2)) assert(not ok and e:find \"blend: argument 'b' is missing\", e)");
  run(S, "local ok, e = pcall(lt.ops.blend, lt.ones(2), lt.ones(2), 1, 2) assert(not ok and e:find 'at most 3', e)");
  run(S, "local ok, e = pcall(lt.ops.blend, lt.ones(2), lt.ones(2), {s = 1}) assert(not ok and e:find 's', e)");
  run(S, "local ok, e = pcall(lt.ops.blend, lt.ones(2), 3) assert(not ok and e:find 'must be a Tensor', e)");
  run(S, "local ok, e = pcall(lt.ops.blend, lt.ones(2), lt.ones(3)) assert(not ok and e:find 'differ in their sizes', e)");
  run(S, "local ok, e = pcall(lt.ops.blend, lt.ones(2):double(), lt.ones(2)) assert(not ok and e:find 'float32', e)");
}

static void test_schemas(lutra_State* S) {
  static const char* const wrong[] = {
      "", "f", "f()", "f() -> Tensor", "f(Tensor x)", "f(Tensor x) ->", "f(Tensor x) -> int", "f(Tensor x) -> ()",
      "f(Tensor x -> Tensor", "(Tensor x) -> Tensor", "1f(Tensor x) -> Tensor", "a::b::c(Tensor x) -> Tensor",
      "f(Tensor) -> Tensor", "f(Tensor x, Tensor x) -> Tensor", "f(Frob x) -> Tensor", "f(int x) -> Tensor",
      "f(Tensor? x) -> Tensor", "f(Tensor x, dtype d) -> Tensor", "f(Tensor x, int k=y) -> Tensor", "f(Tensor x) - > Tensor",
      "f(Tensor x) y -> Tensor", "f(Tensor x,\nTensor y) -> Tensor", "f(Tensor x, Function g) -> Tensor",
      "f(Tensor x, float a, float b, float c, float d, float e, float f, float g, float h, float i) -> Tensor",
      "f(Tensor x) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"};
  lutra_OpCallbacks rules;
  size_t i;
  memset(&rules, 0, sizeof rules);
  rules.size = sizeof rules, rules.kernel = bad;
  for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    check(lutra_register_op(S, wrong[i], &rules) == LUTRA_ERROR_ARGUMENT, wrong[i]);
    check(lutra_error(S)[0] != 0, "that is told");
  }
  check(lutra_register_op(S, "blend(Tensor x) -> Tensor", &rules) == LUTRA_ERROR_ARGUMENT, "a name that is taken");
  check(lutra_register_op(S, "image(Tensor x) -> Tensor", &rules) == LUTRA_ERROR_ARGUMENT, "a library's name");
  check(lutra_register_op(S, "blend::x(Tensor x) -> Tensor", &rules) == LUTRA_ERROR_ARGUMENT, "within an op");
  check(lutra_register_op(NULL, "f(Tensor x) -> Tensor", &rules) == LUTRA_ERROR_STATE, "no state");
  check(lutra_register_op(S, NULL, &rules) == LUTRA_ERROR_ARGUMENT, "no schema");
  check(lutra_register_op(S, "f(Tensor x) -> Tensor", NULL) == LUTRA_ERROR_ARGUMENT, "no rules");
  rules.kernel = NULL;
  check(lutra_register_op(S, "f(Tensor x) -> Tensor", &rules) == LUTRA_ERROR_ARGUMENT, "no kernel");
  run(S, "assert(lt.ops.f == nil)");
}

/* What one process kept on disk, another one with a different op of that name does not take. */
static int twice(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* out, int m) {
  int64_t i;
  (void)S, (void)n, (void)m;
  for (i = 0; i < lutra_tensor_numel(out[0]); i++)
    ((float*)lutra_tensor_data(out[0]))[i] = *(float*)arg * ((float*)lutra_tensor_data(in[0].as.tensor))[i];
  return LUTRA_OK;
}

static void test_states(void) {
  float two = 2, three = 3;
  const char* program = "f = lt.compile(function(x) return lt.ops.times(x) + 1 end) r = f(lt.ones(2))[0]:item()";
  lutra_State *a = lutra_open(NULL), *b = lutra_open(NULL), *c = lutra_open(NULL);
  add(a, "times(Tensor x) -> Tensor", NULL, twice, &two);
  add(b, "times(Tensor x) -> Tensor", NULL, twice, &three);
  add(c, "times(Tensor x, int k=1) -> Tensor", NULL, twice, &three);
  run(a, program), run(b, program), run(c, program);
  run(a, "assert(r == 3 and f(lt.ones(2))[0]:item() == 3)");
  run(b, "assert(r == 4 and f(lt.ones(2))[0]:item() == 4)");
  run(c, "assert(r == 4)");
  lutra_close(a), lutra_close(b), lutra_close(c);
  a = lutra_open(NULL);
  check(lutra_do_string(a, program, "=test") == LUTRA_ERROR_RUN, "an op that this state has not got");
  lutra_close(a);
}

static void test_sandbox(void) {
  float two = 2;
  lutra_Options options;
  lutra_State* S;
  memset(&options, 0, sizeof options);
  options.size = sizeof options, options.sandbox = 1;
  S = lutra_open(&options);
  add(S, "times(Tensor x) -> Tensor", NULL, twice, &two);
  run(S, "local f = lt.compile(function(x) return lt.ops.times(x) + 1 end) assert(f(lt.ones(2))[0]:item() == 3)");
  lutra_close(S);
}

int main(void) {
  Calls calls = {0, 0, 0, NULL}, others = {0, 0, 0, NULL};
  lutra_State* S = lutra_open(NULL);
  if (!S) return fputs(lutra_error(NULL), stderr), 1;
  add(S, "blend(Tensor a, Tensor b, float t=0.5) -> Tensor", blend_shape, blend, &calls);
  add(S, "image::stats(Tensor[] xs, Tensor? w, int k, int[] dims, bool up, *, str mode='plain') -> (Tensor, Tensor)",
      stats_shape, stats, NULL);
  add(S, "bad(Tensor x, int how) -> Tensor", bad_shape, bad, &others);
  test_eager(S, &calls);
  test_compiled(S, &calls);
  test_stats(S);
  test_errors(S, &others);
  test_schemas(S);
  lutra_close(S);
  test_states();
  test_sandbox();
  return failures;
}
