/* Every function of lutra.h called wrongly: a code and a message each time, and the state goes on. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "lua.h"
#include "tests/host/check.h"
#include "vm/capi/lutra.h"

static lutra_State* S;

static void refused(int code, int expected, const char* text, const char* what) {
  const char* message = lutra_error(expected == LUTRA_ERROR_STATE ? NULL : S);
  if (code == expected && strstr(message, text)) return;
  ++failures;
  fprintf(stderr, "FAILED %s: code %d (expected %d), message %s\n", what, code, expected, message);
}
#define REFUSED(call, expected, text) refused(call, expected, text, #call)

static int callback(lutra_State* state, void* arg, const lutra_Value* in, int n, lutra_Value* out, int* m) {
  (void)state, (void)arg, (void)in, (void)n, (void)out;
  *m = arg ? *(int*)arg : 0;
  return LUTRA_OK;
}

static int kernel(lutra_State* state, void* arg, const lutra_Value* in, int n, lutra_Tensor* const* out, int m) {
  (void)state, (void)arg, (void)in, (void)n, (void)out, (void)m;
  return LUTRA_OK;
}

/* An interrupt may come from any thread. */
static void of_limits(lutra_State* state, int expected, const char* text) {
  lutra_Limits limits;
  memset(&limits, 0, sizeof limits);
  limits.size = sizeof limits, limits.seconds = 1;
  REFUSED(lutra_set_limits(state, &limits), expected, text);
  REFUSED(lutra_set_limits(state, NULL), expected, text);
}

static void never(void* data, void* arg) {
  (void)data, (void)arg;
  check(0, "the deleter of a tensor that was not made");
}

static void all_with_state(lutra_State* state, int expected, const char* text) {
  int64_t sizes[1] = {1};
  float data[1] = {1};
  lutra_Tensor* t = (lutra_Tensor*)data;
  lutra_Function* f = (lutra_Function*)data;
  lutra_OpCallbacks rules;
  REFUSED(lutra_do_string(state, "x = 1", NULL), expected, text);
  REFUSED(lutra_do_file(state, "x.lua", 0, NULL), expected, text);
  REFUSED(lutra_call(state, 0, 0), expected, text);
  REFUSED(lutra_tensor_from_memory(state, data, LUTRA_FLOAT32, 1, sizes, NULL, NULL, never, NULL, &t), expected, text);
  check(t == NULL, "an output after an error");
  REFUSED(lutra_tensor_empty(state, LUTRA_FLOAT32, 1, sizes, NULL, &t), expected, text);
  REFUSED(lutra_tensor_from_dlpack(state, (struct DLManagedTensorVersioned*)data, &t), expected, text);
  REFUSED(lutra_tensor_from_dlpack_unversioned(state, (struct DLManagedTensor*)data, &t), expected, text);
  REFUSED(lutra_push_tensor(state, NULL), expected, text);
  REFUSED(lutra_to_tensor(state, 1, &t), expected, text);
  REFUSED(lutra_function(state, "print", &f), expected, text);
  check(f == NULL, "a function after an error");
  REFUSED(lutra_op(state, "add", NULL, 0, NULL, 0), expected, text);
  REFUSED(lutra_op_values(state, "add", NULL, 0, NULL, 0), expected, text);
  REFUSED(lutra_register(state, "f", callback, NULL), expected, text);
  memset(&rules, 0, sizeof rules);
  rules.size = sizeof rules, rules.kernel = kernel;
  REFUSED(lutra_register_op(state, "f(Tensor x) -> Tensor", &rules), expected, text);
  of_limits(state, expected, text);
  REFUSED(lutra_fail(state, "x"), expected == LUTRA_ERROR_STATE ? expected : LUTRA_ERROR_RUN, "");
  REFUSED(lutra_load_state(state, "net", "x.npz"), expected, text);
  REFUSED(lutra_load_state_memory(state, "net", data, 4), expected, text);
}

static void no_pointers(void) {
  int64_t sizes[1] = {1};
  float data[1];
  lutra_Tensor* t;
  lutra_Function* f;
  lutra_OpCallbacks rules;
  lutra_Limits limits = {0, 0, 0, 0};
  const char* arguments[1] = {NULL};
  const int A = LUTRA_ERROR_ARGUMENT;
  REFUSED(lutra_do_string(S, NULL, NULL), A, "text must not be NULL");
  REFUSED(lutra_do_file(S, "x", 1, NULL), A, "argv must not be NULL");
  REFUSED(lutra_do_file(S, "x", 1, arguments), A, "an argument must not be NULL");
  REFUSED(lutra_do_file(S, "x", -1, NULL), A, "argc must not be negative");
  REFUSED(lutra_call(S, 0, 0), A, "no function and 0 arguments");
  REFUSED(lutra_call(S, -3, 0), A, "arguments");
  REFUSED(lutra_tensor_from_memory(S, NULL, LUTRA_FLOAT32, 1, sizes, NULL, NULL, never, NULL, &t), A, "null pointer");
  REFUSED(lutra_tensor_from_memory(S, data, LUTRA_FLOAT32, 1, NULL, NULL, NULL, never, NULL, &t), A, "sizes must not");
  REFUSED(lutra_tensor_from_memory(S, data, LUTRA_FLOAT32, 1, sizes, NULL, NULL, never, NULL, NULL), A, "tensor must");
  REFUSED(lutra_tensor_empty(S, LUTRA_FLOAT32, 1, NULL, NULL, &t), A, "sizes must not be NULL");
  REFUSED(lutra_tensor_empty(S, LUTRA_FLOAT32, 1, sizes, NULL, NULL), A, "tensor must not be NULL");
  REFUSED(lutra_tensor_from_dlpack(S, NULL, &t), A, "the struct must not be NULL");
  REFUSED(lutra_tensor_from_dlpack_unversioned(S, NULL, &t), A, "the struct must not be NULL");
  REFUSED(lutra_to_tensor(S, 1, &t), A, "no tensor is at index 1");
  REFUSED(lutra_to_tensor(S, 0, &t), A, "index 0");
  REFUSED(lutra_to_tensor(S, -70000, &t), A, "index -70000");
  REFUSED(lutra_to_tensor(S, INT32_MIN, &t), A, "no tensor");
  REFUSED(lutra_to_tensor(S, 1, NULL), A, "tensor must not be NULL");
  REFUSED(lutra_function(S, NULL, &f), A, "the expression must not be NULL");
  REFUSED(lutra_function(S, "print", NULL), A, "function must not be NULL");
  REFUSED(lutra_function(S, "1 +", &f), A, "expression:1:");
  REFUSED(lutra_function(S, "1", &f), A, "'1' is a number, which cannot be called");
  REFUSED(lutra_function(S, "nothing", &f), A, "'nothing' is nil, which cannot be called");
  REFUSED(lutra_op(S, NULL, NULL, 0, NULL, 0), A, "the name must not be NULL");
  REFUSED(lutra_op(S, "add", NULL, 2, NULL, 0), A, "inputs must not be NULL");
  REFUSED(lutra_op(S, "add", NULL, 0, NULL, 1), A, "outputs must not be NULL");
  REFUSED(lutra_op(S, "add", NULL, -1, NULL, 0), A, "0 to 250 inputs");
  REFUSED(lutra_op(S, "add", NULL, 0, NULL, 1 << 30), A, "0 to 250 inputs");
  REFUSED(lutra_op(S, "matmull", NULL, 0, NULL, 0), A, "there is no op 'matmull'; did you mean 'matmul'?");
  REFUSED(lutra_op(S, "nn.nothing.x", NULL, 0, NULL, 0), A, "there is no op");
  REFUSED(lutra_op(S, "", NULL, 0, NULL, 0), A, "there is no op");
  REFUSED(lutra_op(S, "sum", NULL, 0, &t, 1), LUTRA_ERROR_RUN, "sum: argument 'input' is missing");
  check(strstr(lutra_error(S), "traceback") == NULL, "a traceback without Lua code");
  REFUSED(lutra_op(S, "float32", NULL, 0, NULL, 0), A, "there is no op 'float32'");
  REFUSED(lutra_op(S, "pi", NULL, 0, NULL, 0), A, "there is no op 'pi'");
  REFUSED(lutra_register(S, NULL, callback, NULL), A, "the name must not be NULL");
  REFUSED(lutra_register(S, "f", NULL, NULL), A, "the callback must not be NULL");
  REFUSED(lutra_register(S, "print.f", callback, NULL), A, "'print' is a function, no table");
  REFUSED(lutra_register(S, "", callback, NULL), A, "'' has an empty part");
  REFUSED(lutra_register(S, "host..f", callback, NULL), A, "'host..f' has an empty part");
  memset(&rules, 0, sizeof rules);
  rules.size = sizeof rules;
  REFUSED(lutra_register_op(S, NULL, &rules), A, "the schema must not be NULL");
  REFUSED(lutra_register_op(S, "f(Tensor x) -> Tensor", NULL), A, "callbacks must not be NULL");
  REFUSED(lutra_register_op(S, "f(Tensor x) -> Tensor", &rules), A, "the kernel must not be NULL");
  rules.kernel = kernel;
  REFUSED(lutra_register_op(S, "f(Tensor x)", &rules), A, "'f(Tensor x)' is no schema");
  REFUSED(lutra_register_op(S, "f(Frob x) -> Tensor", &rules), A, "unknown type 'Frob'");
  rules.size = 0; /* it was forgotten */
  REFUSED(lutra_register_op(S, "f(Tensor x) -> Tensor", &rules), A, "size must be sizeof(lutra_OpCallbacks)");
  limits.size = 0, limits.seconds = 1;
  REFUSED(lutra_set_limits(S, &limits), A, "size must be sizeof(lutra_Limits)");
  limits.size = sizeof limits;
  limits.seconds = -1;
  REFUSED(lutra_set_limits(S, &limits), A, "seconds must be 0 to 1e9, got -1");
  limits.seconds = HUGE_VAL - HUGE_VAL;
  REFUSED(lutra_set_limits(S, &limits), A, "seconds must be");
  limits.seconds = 0, limits.threads = -2;
  REFUSED(lutra_set_limits(S, &limits), A, "threads must not be negative");
  REFUSED(lutra_load_state(S, NULL, "x"), A, "the module must not be NULL");
  REFUSED(lutra_load_state(S, "net", NULL), A, "the path must not be NULL");
  REFUSED(lutra_load_state_memory(S, "net", NULL, 4), A, "data must not be NULL");
}

static void sizes_and_dtypes(void) {
  float data[8];
  lutra_Tensor* t;
  int64_t big[3], strides[2] = {-1, 1}, two[2] = {2, 2}, huge[2];
  const int A = LUTRA_ERROR_ARGUMENT;
#define OVER(dtype, ndim, sizes, strides) \
  lutra_tensor_from_memory(S, data, dtype, ndim, sizes, strides, NULL, never, NULL, &t)
  big[0] = big[1] = big[2] = (int64_t)1 << 40;
  huge[0] = huge[1] = INT64_MAX;
  REFUSED(OVER(0, 2, two, NULL), A, "dtype 0 is none");
  REFUSED(OVER(-5, 2, two, NULL), A, "dtype -5 is none");
  REFUSED(OVER(19, 2, two, NULL), A, "dtype 19 is none");
  REFUSED(OVER(LUTRA_FLOAT32, 17, two, NULL), A, "0 to 16 dimensions, got 17");
  REFUSED(OVER(LUTRA_FLOAT32, -1, two, NULL), A, "dimensions, got -1");
  REFUSED(OVER(LUTRA_FLOAT32, 3, big, NULL), A, "overflow the address space");
  REFUSED(OVER(LUTRA_FLOAT32, 2, huge, NULL), A, "overflow");
  REFUSED(OVER(LUTRA_FLOAT32, 2, huge, two), A, "overflow");
  REFUSED(OVER(LUTRA_FLOAT32, 2, two, huge), A, "overflow the address space");
  REFUSED(OVER(LUTRA_FLOAT32, 2, two, strides), A, "strides must not be negative");
  REFUSED(OVER(LUTRA_FLOAT32, 2, strides, NULL), A, "sizes must not be negative");
  REFUSED(OVER(LUTRA_INT4, 2, two, huge), A, "");
  REFUSED(lutra_tensor_from_memory(S, (char*)data + 1, LUTRA_FLOAT32, 2, two, NULL, NULL, never, NULL, &t), A,
          "aligned to 4 bytes");
  REFUSED(lutra_tensor_from_memory(S, (void*)(UINTPTR_MAX - 7), LUTRA_INT8, 2, big, NULL, NULL, never, NULL, &t), A,
          "overflow the address space");
  REFUSED(lutra_tensor_from_memory(S, data, LUTRA_FLOAT32, 2, two, NULL, "mars", never, NULL, &t), A, "device 'mars'");
  REFUSED(lutra_tensor_empty(S, LUTRA_FLOAT32, 3, big, NULL, &t), A, "overflow the address space");
  REFUSED(lutra_tensor_empty(S, LUTRA_FLOAT32, 2, strides, NULL, &t), A, "negative");
  REFUSED(lutra_tensor_empty(S, 99, 2, two, NULL, &t), A, "dtype 99");
  REFUSED(lutra_tensor_empty(S, LUTRA_INT8, 1, big, NULL, &t), LUTRA_ERROR_MEMORY, "out of memory");
}

static void tensors(void) {
  float data[4] = {1, 2, 3, 4}, host[4];
  int64_t two[2] = {2, 2};
  lutra_Tensor *t = NULL, *out[1];
  lutra_Value value, loop;
  lutra_Function* f = NULL;
  struct DLManagedTensorVersioned* d;
  const int A = LUTRA_ERROR_ARGUMENT;
  memset(&loop, 0, sizeof loop);
  check(lutra_tensor_ndim(NULL) == -1 && !lutra_tensor_sizes(NULL) && !lutra_tensor_strides(NULL), "of NULL");
  check(lutra_tensor_dtype(NULL) == -1 && !lutra_tensor_device(NULL) && !lutra_tensor_data(NULL), "of NULL");
  check(lutra_tensor_numel(NULL) == -1 && !lutra_tensor_retain(NULL), "of NULL");
  lutra_tensor_free(NULL), lutra_function_free(NULL), lutra_values_free(NULL, 3);
  check(lutra_tensor_copy_to(NULL, host, 4) == A && strstr(lutra_error(NULL), "the tensor is NULL") != NULL, "NULL");
  check(lutra_tensor_copy_from(NULL, host, 4) == A && lutra_tensor_to_dlpack(NULL, &d) == A, "NULL");
  check(lutra_tensor_to_dlpack_unversioned(NULL, NULL) == A, "NULL");
  check(lutra_tensor_from_memory(S, data, LUTRA_FLOAT32, 2, two, NULL, NULL, NULL, NULL, &t) == 0, "a tensor");
  check(lutra_tensor_copy_to(t, host, 15) == A && strstr(lutra_error(NULL), "take 16 bytes, got room for 15") != NULL,
        "too little room");
  check(lutra_tensor_copy_to(t, host, 17) == A && lutra_tensor_copy_from(t, host, 0) == A, "wrong room");
  check(lutra_tensor_copy_to(t, NULL, 16) == A && lutra_tensor_copy_from(t, NULL, 16) == A, "no room");
  check(lutra_tensor_to_dlpack(t, NULL) == A, "nowhere to put it");
  check(lutra_push_tensor(S, t) == 0, "push");
  lua_setglobal(lutra_lua(S), "freed");
  out[0] = t;
  REFUSED(lutra_op(S, "matmul", out, 1, out, 1), LUTRA_ERROR_RUN, "matmul");
  check(lutra_function(S, "function(x) return 3 end", &f) == 0, "a function");
  out[0] = t;
  REFUSED(lutra_invoke(f, out, 1, out, 1), A, "result 0 is a number, no tensor");
  check(lutra_invoke(NULL, NULL, 0, NULL, 0) == A && lutra_invoke_values(NULL, NULL, 0, NULL, 0) == A, "no function");
  lutra_function_free(f);
  check(lutra_function(S, "function() return print end", &f) == 0, "a function");
  REFUSED(lutra_invoke_values(f, NULL, 0, &value, 1), A, "result 0 is a function");
  lutra_function_free(f);
  check(lutra_function(S, "function() return {lt.ones(2), {x = lt.ones(2), y = {print}}} end", &f) == 0, "a function");
  REFUSED(lutra_invoke_values(f, NULL, 0, &value, 1), A, "a value in result 0 is a function");
  lutra_function_free(f);
  check(lutra_function(S, "function() return {[true] = 1} end", &f) == 0, "a function");
  REFUSED(lutra_invoke_values(f, NULL, 0, &value, 1), A, "result 0 has a key that is a boolean");
  lutra_function_free(f);
  check(lutra_function(S, "function() local t = {} t.t = t return t end", &f) == 0, "a function");
  REFUSED(lutra_invoke_values(f, NULL, 0, &value, 1), A, "the tables of result 0 are more than 16 deep");
  loop.kind = LUTRA_TABLE, loop.name = "loop", loop.length = 1, loop.as.values = &loop;
  value = loop, value.name = NULL;
  REFUSED(lutra_invoke_values(f, &value, 1, NULL, 0), A, "the tables of value 0 are more than 16 deep");
  value.as.values = NULL;
  REFUSED(lutra_invoke_values(f, &value, 1, NULL, 0), A, "the table of value 0 is NULL");
  value.as.values = &loop, value.length = SIZE_MAX;
  REFUSED(lutra_invoke_values(f, &value, 1, NULL, 0), A, "values is too long");
  memset(&value, 0, sizeof value);
  value.kind = 77;
  REFUSED(lutra_invoke_values(f, &value, 1, NULL, 0), A, "kind 77");
  value.kind = LUTRA_TENSOR;
  REFUSED(lutra_invoke_values(f, &value, 1, NULL, 0), A, "the tensor of value 0 is NULL");
  value.kind = LUTRA_STRING;
  REFUSED(lutra_invoke_values(f, &value, 1, NULL, 0), A, "the string of value 0 is NULL");
  value.kind = LUTRA_INTEGERS, value.length = 3;
  REFUSED(lutra_invoke_values(f, &value, 1, NULL, 0), A, "a list of integers must not be NULL");
  lutra_function_free(f);
  check(lutra_do_string(S, "freed:free() freed = nil", NULL) == 0, "free from the program");
  check(lutra_tensor_data(t) == NULL && lutra_tensor_copy_to(t, host, 16) == A, "a freed tensor");
  check(strstr(lutra_error(NULL), "the tensor's memory was freed") != NULL, "a freed tensor is told");
  lutra_tensor_free(t);
}

static void programs(void) {
  int many = 99;
  check(lutra_do_string(S, "x = = 1", "=test") == LUTRA_ERROR_SYNTAX, "syntax");
  check(lutra_register(S, "host.many", callback, &many) == 0, "register");
  check(lutra_do_string(S, "host.many()", "=test") == LUTRA_ERROR_RUN &&
            strstr(lutra_error(S), "says that it gives 99 results") != NULL, "a callback with too many results");
  check(lutra_do_string(S, "local t = {} for i = 1, 1000 do t[i] = i end host.many(unpack(t))", "=test") ==
            LUTRA_ERROR_RUN, "too many arguments");
  check(lutra_do_string(S, "error(setmetatable({}, {__tostring = error}))", "=test") == LUTRA_ERROR_RUN, "bad error");
}

static void* other_thread(void* arg) {
  (void)arg;
  all_with_state(S, LUTRA_ERROR_STATE, "another thread uses the state");
  check(strstr(lutra_error(S), "another thread uses the state") != NULL, "lutra_error on the other thread");
  check(lutra_lua(S) == NULL, "lutra_lua on the other thread");
  lutra_close(S); /* does nothing */
  return NULL;
}

static int in_state(lutra_State* state, void* arg, const lutra_Value* in, int n, lutra_Value* out, int* m) {
  pthread_t thread;
  (void)state, (void)arg, (void)in, (void)n, (void)out;
  *m = 0;
  pthread_create(&thread, NULL, other_thread, NULL);
  pthread_join(thread, NULL);
  return LUTRA_OK;
}

static void* owner_changes(void* arg) {
  check(lutra_do_string((lutra_State*)arg, "moved = 1", NULL) == LUTRA_OK, "a state goes to another thread");
  return NULL;
}

int main(void) {
  pthread_t thread;
  lutra_State* closed;
  lutra_Function* f = NULL;
  lutra_Options options;
  memset(&options, 0, sizeof options);
  options.sandbox = 1; /* and its size was forgotten */
  check(!lutra_open(&options) && strstr(lutra_error(NULL), "size must be sizeof(lutra_Options)"), "a size of options");
  S = lutra_open(NULL);
  if (!S) return fputs(lutra_error(NULL), stderr), 1;
  all_with_state(NULL, LUTRA_ERROR_STATE, "the state is NULL");
  lutra_close(NULL);
  check(lutra_interrupt(NULL) == LUTRA_ERROR_STATE && lutra_interrupt(S) == LUTRA_OK, "interrupts");
  check(!lutra_dtype_name(0) && !lutra_dtype_name(-1) && !lutra_dtype_name(19) && lutra_dtype_name(18), "dtypes");
  check(lutra_abi() == LUTRA_ABI && strcmp(lutra_version(), LUTRA_VERSION) == 0, "the library's version");
  no_pointers();
  sizes_and_dtypes();
  tensors();
  programs();
  check(lutra_register(S, "host.elsewhere", in_state, NULL) == 0, "register");
  check(lutra_do_string(S, "host.elsewhere()", "=test") == LUTRA_OK, "calls from another thread meanwhile");
  pthread_create(&thread, NULL, owner_changes, S);
  pthread_join(thread, NULL);
  check(lua_gettop(lutra_lua(S)) == 0, "the stack is as it was");
  check(lutra_do_string(S, "assert(lt.ones(2):sum():item() == 2 and moved == 1)", NULL) == LUTRA_OK, "it goes on");
  check(lutra_function(S, "print", &f) == LUTRA_OK, "a function");
  closed = S;
  lutra_close(S);
  all_with_state(closed, LUTRA_ERROR_STATE, "the state is closed");
  check(lutra_invoke(f, NULL, 0, NULL, 0) == LUTRA_ERROR_STATE, "a function of a closed state");
  check(lutra_interrupt(closed) == LUTRA_ERROR_STATE, "an interrupt of a closed state");
  check(strstr(lutra_error(closed), "the state is closed") != NULL && lutra_lua(closed) == NULL, "closed");
  lutra_function_free(f);
  lutra_close(closed);
  return failures;
}
