/* A host in C that gives Lutra its memory, calls functions and ops by name, and reads results. */
#include <stdlib.h>

#include "lauxlib.h"
#include "lua.h"
#include "tests/host/check.h"
#include "tests/host/dlpack.h"
#include "vm/capi/lutra.h"

static void expect(lutra_State* S, int code, const char* what) {
  check(code == LUTRA_OK, what);
  if (code != LUTRA_OK) fprintf(stderr, "  %d %s\n", code, lutra_error(S));
}

static void run(lutra_State* S, const char* program) { expect(S, lutra_do_string(S, program, "=test"), program); }

static int deleted = 0;
static void on_delete(void* data, void* arg) {
  deleted += *(int*)arg;
  (void)data;
}

static lutra_Tensor* over(lutra_State* S, float* data, int64_t rows, int64_t columns) {
  int64_t sizes[2];
  lutra_Tensor* t = NULL;
  sizes[0] = rows, sizes[1] = columns;
  expect(S, lutra_tensor_from_memory(S, data, LUTRA_FLOAT32, 2, sizes, NULL, NULL, NULL, NULL, &t), "from_memory");
  return t;
}

static void test_memory(lutra_State* S) {
  float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  float out[6];
  int64_t sizes[2] = {2, 3}, strides[2] = {1, 4};
  int one = 1;
  lutra_Tensor *t = NULL, *again = NULL;
  deleted = 0;
  expect(S, lutra_tensor_from_memory(S, data, LUTRA_FLOAT32, 2, sizes, strides, "cpu", on_delete, &one, &t), "strided");
  check(lutra_tensor_ndim(t) == 2 && lutra_tensor_dtype(t) == LUTRA_FLOAT32 && lutra_tensor_data(t) == data, "about");
  check(lutra_tensor_sizes(t)[1] == 3 && lutra_tensor_strides(t)[1] == 4 && lutra_tensor_numel(t) == 6, "layout");
  check(strcmp(lutra_tensor_device(t), "cpu") == 0, "device");
  check(strcmp(lutra_dtype_name(LUTRA_BFLOAT16), "bfloat16") == 0 && !lutra_dtype_name(0) && !lutra_dtype_name(99),
        "names of dtypes");
  expect(S, lutra_tensor_copy_to(t, out, sizeof out), "copy_to");
  check(out[0] == 0 && out[1] == 4 && out[2] == 8 && out[3] == 1, "copied elements");
  expect(S, lutra_push_tensor(S, t), "push");
  lua_setglobal(lutra_lua(S), "shared");
  run(S, "shared:mul_(10) assert(shared[{1, 2}]:item() == 90)");
  check(data[9] == 90 && data[2] == 2, "a write of the program is seen");
  data[0] = -1;
  run(S, "assert(shared[{0, 0}]:item() == -1)");
  lua_getglobal(lutra_lua(S), "shared");
  expect(S, lutra_to_tensor(S, -1, &again), "to_tensor");
  lua_settop(lutra_lua(S), 0);
  check(lutra_tensor_data(again) == data, "the same tensor");
  lutra_tensor_free(again);
  for (one = 0; one < 6; one++) out[one] = (float)one;
  one = 1;
  expect(S, lutra_tensor_copy_from(t, out, sizeof out), "copy_from");
  check(data[0] == 0 && data[4] == 1 && data[8] == 2 && data[1] == 3, "elements written with strides");
  check(deleted == 0, "not deleted yet");
  lutra_tensor_free(lutra_tensor_retain(t));
  run(S, "view = shared:t()");
  lutra_tensor_free(t);
  run(S, "shared = nil collectgarbage() collectgarbage()");
  check(deleted == 0, "a view keeps the memory");
  run(S, "view = nil collectgarbage() collectgarbage()");
  check(deleted == 1, "deleted once");
  expect(S, lutra_tensor_empty(S, LUTRA_INT64, 2, sizes, NULL, &t), "empty");
  check(lutra_tensor_dtype(t) == LUTRA_INT64 && lutra_tensor_numel(t) == 6 && lutra_tensor_data(t), "an empty one");
  lutra_tensor_free(t);
  expect(S, lutra_tensor_empty(S, LUTRA_FLOAT64, 0, NULL, NULL, &t), "a scalar");
  check(lutra_tensor_numel(t) == 1, "one element");
  lutra_tensor_free(t);
}

static void test_functions(lutra_State* S) {
  float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1};
  lutra_Tensor *in[2], *out[3] = {NULL, NULL, NULL};
  lutra_Function* f = NULL;
  in[0] = over(S, a, 2, 3), in[1] = over(S, b, 3, 2);
  expect(S, lutra_op(S, "matmul", in, 2, out, 1), "matmul");
  check(lutra_tensor_sizes(out[0])[0] == 2 && ((float*)lutra_tensor_data(out[0]))[0] == 4, "product");
  lutra_tensor_free(out[0]);
  expect(S, lutra_op(S, "nn.functional.relu", in, 1, out, 1), "a dotted name");
  lutra_tensor_free(out[0]);
  expect(S, lutra_op(S, "neg_", in, 1, NULL, 0), "in place");
  check(a[5] == -6, "written in place");
  expect(S, lutra_op(S, "unbind", in, 1, out, 3), "a list of results");
  check(out[0] && out[1] && !out[2] && lutra_tensor_ndim(out[1]) == 1, "two of three");
  lutra_tensor_free(out[0]), lutra_tensor_free(out[1]);
  run(S, "calls = 0 step = lt.compile(function(x, y) return x + 1, nil, y and y * 2 end)");
  expect(S, lutra_function(S, "step", &f), "function");
  expect(S, lutra_invoke(f, in, 2, out, 3), "invoke");
  check(out[0] && !out[1] && out[2] && ((float*)lutra_tensor_data(out[2]))[5] == 2, "results");
  lutra_tensor_free(out[0]), lutra_tensor_free(out[2]);
  in[1] = (lutra_tensor_free(in[1]), (lutra_Tensor*)NULL);
  expect(S, lutra_invoke(f, in, 2, out, 1), "nil as an input");
  lutra_tensor_free(out[0]);
  lutra_function_free(f);
  run(S, "net = lt.nn.Linear(3, 4)");
  expect(S, lutra_function(S, "net", &f), "a module");
  expect(S, lutra_invoke(f, in, 1, out, 1), "a module is called");
  check(lutra_tensor_sizes(out[0])[1] == 4, "its result");
  lutra_tensor_free(out[0]), lutra_function_free(f);
  check(lutra_function(S, "nothing", &f) == LUTRA_ERROR_ARGUMENT && !f, "no function");
  check(strstr(lutra_error(S), "'nothing' is nil, which") != NULL, "no function is told");
  lutra_tensor_free(in[0]);
}

static lutra_Value number(double v) {
  lutra_Value out;
  memset(&out, 0, sizeof out);
  out.kind = LUTRA_NUMBER, out.as.number = v;
  return out;
}

static void test_values(lutra_State* S) {
  float a[6] = {1, 2, 3, 4, 5, 6};
  int64_t dims[1] = {1};
  lutra_Value in[3], out[6];
  lutra_Function* f = NULL;
  memset(in, 0, sizeof in);
  in[0].kind = LUTRA_TENSOR, in[0].as.tensor = over(S, a, 2, 3);
  in[1].kind = LUTRA_INTEGERS, in[1].as.integers = dims, in[1].length = 1;
  in[2].name = "keepdim", in[2].kind = LUTRA_BOOLEAN, in[2].as.boolean = 1;
  expect(S, lutra_op_values(S, "sum", in, 3, out, 1), "sum by values");
  check(out[0].kind == LUTRA_TENSOR && lutra_tensor_sizes(out[0].as.tensor)[1] == 1, "keepdim");
  check(((float*)lutra_tensor_data(out[0].as.tensor))[1] == 15, "sums");
  lutra_values_free(out, 1);
  lutra_tensor_free(in[0].as.tensor);
  run(S, "function g(a, b, c) return a, b, c, true, lt.ones(2), 2^40 end");
  expect(S, lutra_function(S, "g", &f), "g");
  in[0] = number(1.5);
  in[1].kind = LUTRA_STRING, in[1].as.string = "two", in[1].length = 0;
  in[2].name = NULL, in[2].kind = LUTRA_INTEGER, in[2].as.integer = ((int64_t)1 << 62) + 1;
  expect(S, lutra_invoke_values(f, in, 3, out, 6), "values");
  check(out[0].kind == LUTRA_NUMBER && out[0].as.number == 1.5, "number");
  check(out[1].kind == LUTRA_STRING && strcmp(out[1].as.string, "two") == 0 && out[1].length == 3, "string");
  check(out[2].kind == LUTRA_INTEGER && out[2].as.integer == ((int64_t)1 << 62) + 1, "integer");
  check(out[3].kind == LUTRA_BOOLEAN && out[3].as.boolean, "boolean");
  check(out[4].kind == LUTRA_TENSOR && out[5].as.number == 1099511627776.0, "tensor");
  lutra_values_free(out, 6);
  check(out[4].kind == LUTRA_NIL, "freed values are nil");
  lutra_function_free(f);
}

/* {3, {x, scale = 2}, name = "net"} there and back. */
static void test_tables(lutra_State* S) {
  float a[2] = {1, 2};
  lutra_Value inner[2], fields[3], in, out;
  const lutra_Value* results;
  lutra_Function* f = NULL;
  memset(inner, 0, sizeof inner), memset(fields, 0, sizeof fields), memset(&in, 0, sizeof in);
  inner[0].kind = LUTRA_TENSOR, inner[0].as.tensor = over(S, a, 1, 2);
  inner[1] = number(2), inner[1].name = "scale";
  fields[0] = number(3);
  fields[1].name = "name", fields[1].kind = LUTRA_STRING, fields[1].as.string = "net";
  fields[2].kind = LUTRA_TABLE, fields[2].as.values = inner, fields[2].length = 2;
  in.kind = LUTRA_TABLE, in.as.values = fields, in.length = 3;
  run(S, "function h(t) assert(#t == 2 and t[1] == 3 and t.name == 'net') return {t[2][1] * t[2].scale, {}, "
         "deep = {loss = {0.5, 'half'}}} end");
  expect(S, lutra_function(S, "h", &f), "h");
  expect(S, lutra_invoke_values(f, &in, 1, &out, 1), "tables");
  results = out.as.values;
  check(out.kind == LUTRA_TABLE && out.length == 3, "a table of three");
  check(results[0].kind == LUTRA_TENSOR && ((float*)lutra_tensor_data(results[0].as.tensor))[1] == 4, "its tensor");
  check(results[1].kind == LUTRA_TABLE && results[1].length == 0 && !results[1].name, "an empty table");
  check(results[2].name && strcmp(results[2].name, "deep") == 0, "its field's name");
  results = results[2].as.values[0].as.values;
  check(results[0].as.number == 0.5 && strcmp(results[1].as.string, "half") == 0, "deep values");
  lutra_values_free(&out, 1);
  check(out.kind == LUTRA_NIL, "a freed table is nil");
  lutra_function_free(f);
  lutra_tensor_free(inner[0].as.tensor);
}

static int add(lutra_State* S, void* arg, const lutra_Value* in, int n, lutra_Value* out, int* m) {
  lutra_Tensor* tensors[2];
  if (n == 1 && in[0].kind == LUTRA_STRING) return lutra_fail(S, in[0].as.string);
  if (n != 2 || in[0].kind != LUTRA_TENSOR || in[1].kind != LUTRA_TENSOR) return LUTRA_ERROR_ARGUMENT;
  ++*(int*)arg;
  tensors[0] = in[0].as.tensor, tensors[1] = in[1].as.tensor;
  memset(out, 0, 2 * sizeof *out);
  if (lutra_op(S, "add", tensors, 2, &out[0].as.tensor, 1) != LUTRA_OK) return lutra_fail(S, lutra_error(S));
  out[0].kind = LUTRA_TENSOR;
  out[1].kind = LUTRA_STRING, out[1].as.string = "added";
  *m = 2;
  lutra_close(S); /* refused: it runs */
  return LUTRA_OK;
}

static void test_callbacks(lutra_State* S) {
  int calls = 0;
  expect(S, lutra_register(S, "host.add", add, &calls), "register");
  run(S, "local t, s = host.add(lt.ones(2), lt.ones(2)) assert(t:sum():item() == 4 and s == 'added')");
  run(S, "local co = coroutine.wrap(function() return host.add(lt.ones(2), lt.ones(2)) end) assert(co():numel() == 2)");
  run(S, "local ok, e = pcall(host.add, 'no such luck') assert(not ok and e:find 'no such luck', e)");
  run(S, "local ok, e = pcall(host.add, {}) assert(not ok and e:find 'host.add: the host.s function failed', e)");
  run(S, "local ok, e = pcall(host.add, lt.ones(2), lt.ones(3)) assert(not ok and e:find 'add: ', e)");
  run(S, "local f = lt.compile(function(x) local y = host.add(x, x) return y * 2 end)\n"
         "for i = 1, 3 do assert(f(lt.ones(2)):sum():item() == 8) end");
  check(calls == 6, "calls were counted");
}

static void write_to(void* arg, const char* text, size_t length) { strncat((char*)arg, text, length); }

static void test_output(void) {
  char out[200] = "", err[200] = "";
  lutra_Options options;
  lutra_State* S;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.output = write_to, options.output_arg = out;
  options.error_output = write_to, options.error_output_arg = err;
  S = lutra_open(&options);
  check(S != NULL, "open with output");
  run(S, "print('a', 1, nil) io.write('b', 2, '\\n') io.stdout:write('c'):write('d\\n') io.stdout:flush()");
  run(S, "io.stderr:write('wrong\\n')");
  check(strcmp(out, "a\t1\tnil\nb2\ncd\n") == 0, "output");
  check(strcmp(err, "wrong\n") == 0, "error output");
  lutra_close(S);
}

static void test_dlpack(lutra_State* S) {
  float a[6] = {1, 2, 3, 4, 5, 6};
  struct DLManagedTensorVersioned* d = NULL;
  struct DLManagedTensor* old = NULL;
  lutra_Tensor *t = over(S, a, 2, 3), *back = NULL;
  expect(S, lutra_tensor_to_dlpack(t, &d), "to_dlpack");
  check(d->major == 1 && d->flags == 0 && d->dl_tensor.data == a && d->dl_tensor.ndim == 2, "the struct");
  check(d->dl_tensor.dtype.code == 2 && d->dl_tensor.dtype.bits == 32 && d->dl_tensor.dtype.lanes == 1, "its dtype");
  check(d->dl_tensor.shape[1] == 3 && d->dl_tensor.strides[0] == 3 && d->dl_tensor.device.device_type == 1, "layout");
  lutra_push_tensor(S, t);
  lua_setglobal(lutra_lua(S), "lent");
  run(S, "local ok, e = pcall(lent.free, lent) assert(not ok and e:find 'free: the memory is shared', e) lent = nil");
  lutra_tensor_free(t);
  run(S, "collectgarbage() collectgarbage()");
  d->dl_tensor.ndim = -1;
  check(lutra_tensor_from_dlpack(S, d, &back) != LUTRA_OK, "a negative number of dims");
  check(strncmp(lutra_error(S), "lutra_tensor_from_dlpack: a tensor of -1 dims", 45) == 0, lutra_error(S));
  d->dl_tensor.ndim = 2;
  expect(S, lutra_tensor_from_dlpack(S, d, &back), "from_dlpack");
  check(lutra_tensor_data(back) == a && lutra_tensor_sizes(back)[0] == 2, "the tensor of the struct");
  expect(S, lutra_tensor_to_dlpack_unversioned(back, &old), "to_dlpack_unversioned");
  lutra_tensor_free(back);
  old->dl_tensor.strides = NULL, old->dl_tensor.byte_offset = 4, old->dl_tensor.shape[0] = 1;
  expect(S, lutra_tensor_from_dlpack_unversioned(S, old, &back), "from_dlpack_unversioned");
  check(lutra_tensor_data(back) == a + 1, "byte offset");
  lutra_tensor_free(back);
}

static void test_states(lutra_State* S) {
  const char name[] = "lutra-host-test.safetensors";
  char text[200];
  FILE* file;
  void* bytes;
  size_t n;
  sprintf(text, "net = lt.nn.Linear(3, 2) lt.save('%s', net:state_dict()) kept = net.weight:clone()", name);
  run(S, text);
  run(S, "lt.no_grad(net.weight.zero_, net.weight)");
  expect(S, lutra_load_state(S, "net", name), "load_state");
  run(S, "assert(net.weight:equal(kept)) lt.no_grad(net.weight.zero_, net.weight)");
  file = fopen(name, "rb");
  bytes = malloc(100000);
  n = fread(bytes, 1, 100000, file);
  fclose(file);
  expect(S, lutra_load_state_memory(S, "net", bytes, n), "load_state_memory");
  run(S, "assert(net.weight:equal(kept))");
  check(lutra_load_state_memory(S, "net", bytes, n / 2) == LUTRA_ERROR_RUN, "half of the bytes");
  check(strstr(lutra_error(S), "the memory is damaged") != NULL, "that is told");
  run(S, "other = lt.nn.Linear(9, 2)");
  check(lutra_load_state(S, "other", name) == LUTRA_ERROR_RUN && strstr(lutra_error(S), "weight") != NULL, "no fit");
  check(lutra_load_state(S, "_G", name) == LUTRA_ERROR_ARGUMENT, "no module");
  check(lutra_load_state(S, "net", "nowhere.npz") == LUTRA_ERROR_FILE, "no file");
  check(strstr(lutra_error(S), "cannot open 'nowhere.npz': No such file") != NULL, "that is told");
  free(bytes);
  remove(name);
}

int main(void) {
  lutra_State* S = lutra_open(NULL);
  lutra_Tensor *left = NULL, *in[1];
  if (!S) return fputs(lutra_error(NULL), stderr), 1;
  check(lutra_abi() == LUTRA_ABI, "abi");
  test_memory(S);
  test_functions(S);
  test_values(S);
  test_tables(S);
  test_callbacks(S);
  test_dlpack(S);
  test_states(S);
  test_output();
  check(lua_gettop(lutra_lua(S)) == 0, "the stack is as it was");
  run(S, "left = lt.full({2, 2}, 7)");
  lua_getglobal(lutra_lua(S), "left");
  expect(S, lutra_to_tensor(S, -1, &left), "a tensor that is left");
  lutra_close(S);
  check(((float*)lutra_tensor_data(left))[3] == 7, "it outlives its state");
  S = lutra_open(NULL);
  in[0] = left;
  expect(S, lutra_op(S, "neg", in, 1, &left, 1), "it goes to another state");
  check(((float*)lutra_tensor_data(left))[3] == -7, "and is used there");
  lutra_tensor_free(in[0]), lutra_tensor_free(left);
  lutra_close(S);
  return failures;
}
