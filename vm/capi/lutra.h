/* lutra.h: the C API of Lutra, for hosts that embed it. Plain C89 with <stdint.h>. docs/embedding.md teaches it.
 *
 *   lutra_State *S = lutra_open(NULL);
 *   if (!S) { fprintf(stderr, "%s\n", lutra_error(NULL)); return 1; }
 *   if (lutra_do_string(S, "print(lt.ones(2, 2):sum())", "=example") != LUTRA_OK)
 *     fprintf(stderr, "%s\n", lutra_error(S));
 *   lutra_close(S);
 *
 * Errors: a function that returns int gives LUTRA_OK or a code below; lutra_error tells what happened. No C++ exception
 * and no Lua error leaves these functions. NULL where something is needed is an error, as is a state that was closed;
 * where nothing can be returned nothing is done.
 *
 * Threads: a state is used by one thread at a time: a call from another one meanwhile is LUTRA_ERROR_STATE. Only
 * lutra_interrupt may be called at any time. Several states may run in several threads.
 *
 * Tensors: a lutra_Tensor is a counted reference, of no state: it may go to another thread and outlive its state. Who
 * gets one frees it. Tensors themselves are not locked: the host sees to it that nobody reads one while another thread
 * writes it.
 *
 * Linking: the host links LuaJIT (its lua_* functions) beside this library.
 */
#ifndef LUTRA_H
#define LUTRA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUTRA_VERSION "0.1.0"

/* Grows by one with every change that programs compiled before would not survive; additions keep it. */
#define LUTRA_ABI 1

#if defined(__GNUC__)
#define LUTRA_API __attribute__((visibility("default")))
#else
#define LUTRA_API
#endif

struct lua_State;
struct DLManagedTensor;          /* of dlpack.h, before version 1 */
struct DLManagedTensorVersioned; /* of dlpack.h, version 1 */

typedef struct lutra_State lutra_State;
typedef struct lutra_Tensor lutra_Tensor;
typedef struct lutra_Function lutra_Function;

enum {
  LUTRA_OK = 0,
  LUTRA_ERROR_RUN = 1,      /* the program raised an error */
  LUTRA_ERROR_SYNTAX = 2,   /* it did not compile */
  LUTRA_ERROR_FILE = 3,     /* the file could not be read */
  LUTRA_ERROR_MEMORY = 4,   /* out of memory */
  LUTRA_ERROR_LIMIT = 5,    /* a limit was reached, or lutra_interrupt called */
  LUTRA_ERROR_ARGUMENT = 6, /* an argument of the call is wrong: NULL, a size, a dtype, a name */
  LUTRA_ERROR_STATE = 7     /* the state is closed, or in use by another thread */
};

/* -- States ----------------------------------------------------------------------------------------------------- */

/* Gets text that is written; it is not terminated. */
typedef void (*lutra_Writer)(void* arg, const char* text, size_t length);

/* Gives the bytes of a file that a sandboxed program asks for by calling sink(sink_arg, bytes, size), once or in parts.
 * Returns LUTRA_OK, or any other code where there is no such file for it. */
typedef int (*lutra_FileReader)(void* arg, const char* name, lutra_Writer sink, void* sink_arg);

/* The host's memory for elements of tensors on the CPU; working memory of ops stays Lutra's own. allocate gives a block
 * aligned to `alignment` (64), or NULL: then garbage is collected and it is asked once more, then the call fails with
 * LUTRA_ERROR_MEMORY. Both are called by threads that use the state, free also by others, and after the state was
 * closed: by who holds a tensor last. They must not call functions with a state. */
typedef struct lutra_Allocator {
  void* (*allocate)(void* arg, size_t bytes, size_t alignment); /* NULL: Lutra's own memory */
  void (*free)(void* arg, void* block, size_t bytes);
  void* arg;
} lutra_Allocator;

/* The host's threads in the place of Lutra's: run calls task(task_arg, i) once for each i in [0, n), on whatever
 * threads, the calling one among them or not, and returns when all have returned. Results do not depend on it. */
typedef struct lutra_ThreadPool {
  void (*run)(void* arg, int n, void (*task)(void* task_arg, int i), void* task_arg); /* NULL: Lutra's own threads */
  void* arg;
  int count; /* how many tasks run at once: 1 to 255 */
} lutra_ThreadPool;

typedef struct lutra_Options {
  size_t size;           /* sizeof(lutra_Options) of the caller: less than the first version's is an error */
  const char* device;    /* where tensors are made by default: NULL or "cpu", "cuda:0" */
  int no_global;         /* do not set the global `lt` (scripts use require "lutra") */
  int ignore_env;        /* do not read LUA_PATH and the like */
  struct lua_State* lua; /* open Lutra in this state of the host, whose Lua libraries are open; lutra_close leaves it */
  lutra_Writer output;   /* gets what print, io.write and io.stdout:write write; NULL: standard output does */
  void* output_arg;
  lutra_Writer error_output; /* gets what io.stderr:write writes; NULL: standard error does */
  void* error_output_arg;
  lutra_Writer log; /* gets the lines of LUTRA_LOGS that come from this state; NULL: standard error does */
  void* log_arg;
  int no_interrupt; /* lutra_interrupt does nothing, and no signal is Lutra's but for calls with limits */
  /* Programs are confined: they get no ffi, io, os, debug, jit, bytecode, environments of others, native modules, no
   * addresses of elements, files or settings of the process, and code that was kept on disk is read only. Memory that
   * lt.empty and its kin give is cleared. require and lt.load ask read_file: NULL, nothing is there. Limits are the
   * host's to set. Not with `lua`. */
  int sandbox;
  lutra_FileReader read_file;
  void* read_file_arg;
  lutra_Allocator allocator;
  lutra_ThreadPool threads;
  const char* cache; /* code on disk: "on" takes and keeps it, "read" takes it only, "off"; NULL: as LUTRA_CACHE says.
                        A sandbox keeps none */
} lutra_Options;

/* A state with Lua's and Lutra's libraries open; NULL on failure (lutra_error(NULL) tells why). options may be NULL. */
LUTRA_API lutra_State* lutra_open(const lutra_Options* options);

/* Closes the state and everything in it; tensors that the host holds live on. Nothing happens for NULL, for a state
 * that was closed, within a callback of the state, and while another thread uses it. */
LUTRA_API void lutra_close(lutra_State* S);

/* Ends what runs in the state by an error (LUTRA_ERROR_LIMIT, "interrupted!"): Lua code, ops, kernels between their
 * parts, compilation. A program that catches the error gets it again 0.2 s later, until the call ends; the state goes
 * on. Where nothing runs, nothing happens. May be called from any thread and from a signal's handler, as long as the
 * state is open; so it leaves no message: LUTRA_ERROR_STATE is all that it says. One state of a process at a time has
 * loops of LuaJIT's machine code that look whether they shall stop, the first that is open: it uses LuaJIT's profiler
 * (SIGPROF). In others such a loop ends when it next calls an op or leaves the machine code. SIGRTMIN + 7 is Lutra's.
 */
LUTRA_API int lutra_interrupt(lutra_State* S);

typedef struct lutra_Limits {
  size_t size;    /* sizeof(lutra_Limits) of the caller, as of lutra_Options */
  double seconds; /* of the clock, of each call that runs a program; 0: any number */
  uint64_t bytes; /* that the state may hold, its tensors and Lua's heap together; 0: any number */
  int threads;    /* that an op may use, the calling one included; 0: as many as the settings say */
} lutra_Limits;

/* What each later call may take; NULL: anything. A call that takes longer ends as by lutra_interrupt, with the text
 * "limits: n seconds are over"; a block of memory that could not be filled in the time that is left is refused. Where
 * the state would hold more bytes garbage is collected, then the allocation fails: the call ends with "limits: n bytes
 * are used up", unless the program catches that. Memory of the host is not counted. Within a callback they hold for the
 * calls that it makes from then on, beside those of the call that runs. In Lua
 * lt.limits{seconds = n, bytes = n, threads = n}(f, ...) does so for a call of f. */
LUTRA_API int lutra_set_limits(lutra_State* S, const lutra_Limits* limits);

/* The last error of this state: "FILE:LINE: message" and, where Lua code was on the way, a traceback. Where S is NULL,
 * or cannot be used by this thread: of the last call of this thread that had no state to tell it (lutra_open, functions
 * of tensors, LUTRA_ERROR_STATE). Valid until the next call; never NULL. Only after a failure does it mean anything:
 * calls that succeed leave it as it was. */
LUTRA_API const char* lutra_error(const lutra_State* S);

/* LUTRA_VERSION and LUTRA_ABI of the library that is running. */
LUTRA_API const char* lutra_version(void);
LUTRA_API int lutra_abi(void);

/* -- Programs ----------------------------------------------------------------------------------------------------- */

/* Runs a text. chunkname is how errors name it: "=name" as it is, "@file" as a file; NULL shows the text's first line.
 */
LUTRA_API int lutra_do_string(lutra_State* S, const char* text, const char* chunkname);

/* Runs a file with arguments: `...` in it, and the global table `arg` (arg[0] is the path). path NULL reads standard
 * input. */
LUTRA_API int lutra_do_file(lutra_State* S, const char* path, int argc, const char* const* argv);

/* -- Tensors ------------------------------------------------------------------------------------------------------ */

enum {
  LUTRA_BOOL = 1,
  LUTRA_UINT8 = 2,
  LUTRA_INT8 = 3,
  LUTRA_INT16 = 4,
  LUTRA_INT32 = 5,
  LUTRA_INT64 = 6,
  LUTRA_FLOAT16 = 7,
  LUTRA_BFLOAT16 = 8,
  LUTRA_FLOAT32 = 9,
  LUTRA_FLOAT64 = 10,
  LUTRA_UINT16 = 11,
  LUTRA_UINT32 = 12,
  LUTRA_UINT64 = 13,
  LUTRA_FLOAT8_E4M3FN = 14,
  LUTRA_FLOAT8_E5M2 = 15,
  LUTRA_INT4 = 16,
  LUTRA_COMPLEX64 = 17,
  LUTRA_COMPLEX128 = 18
};

/* "float32" for LUTRA_FLOAT32; NULL for what is no dtype. */
LUTRA_API const char* lutra_dtype_name(int dtype);

/* A tensor has at most so many dimensions. */
#define LUTRA_MOST_DIMS 16

/* Called with a tensor's memory when no tensor needs it any more, on whatever thread that happens. It must not call
 * functions with a state. */
typedef void (*lutra_Deleter)(void* data, void* arg);

/* A tensor over memory of the host, without a copy: what either side writes the other one sees. Sizes and strides count
 * elements; strides NULL: the last dimension lies closest. device NULL: "cpu"; with "cuda:N" data is an address of that
 * GPU's memory, and work on it is done. The memory stays valid until the deleter is called (NULL: as long as any tensor
 * over it lives, views and what a script kept included). On failure the deleter is not called. */
LUTRA_API int lutra_tensor_from_memory(lutra_State* S, void* data, int dtype, int ndim, const int64_t* sizes,
                                       const int64_t* strides, const char* device, lutra_Deleter deleter, void* arg,
                                       lutra_Tensor** tensor);

/* A contiguous tensor of memory of its own, which is not initialised. */
LUTRA_API int lutra_tensor_empty(lutra_State* S, int dtype, int ndim, const int64_t* sizes, const char* device,
                                 lutra_Tensor** tensor);

/* One reference more (returns tensor), one less. NULL is allowed. From any thread. */
LUTRA_API lutra_Tensor* lutra_tensor_retain(lutra_Tensor* tensor);
LUTRA_API void lutra_tensor_free(lutra_Tensor* tensor);

/* What a tensor is; of NULL: -1, NULL, 0. The arrays have ndim elements and live until the next call for this
 * reference. _data is the address of the first element: on a GPU an address there, NULL once the tensor was freed
 * (x:free()). It is valid while the tensor lives and keeps its memory (resize_ and x.data = y give it another). On the
 * CPU the elements are there when the call that made them has returned; for a GPU use lutra_tensor_copy_to or
 * _to_dlpack, which wait. */
LUTRA_API int lutra_tensor_ndim(const lutra_Tensor* tensor);
LUTRA_API const int64_t* lutra_tensor_sizes(lutra_Tensor* tensor);
LUTRA_API const int64_t* lutra_tensor_strides(lutra_Tensor* tensor);
LUTRA_API int64_t lutra_tensor_numel(const lutra_Tensor* tensor);
LUTRA_API int lutra_tensor_dtype(const lutra_Tensor* tensor);
LUTRA_API const char* lutra_tensor_device(lutra_Tensor* tensor);
LUTRA_API void* lutra_tensor_data(const lutra_Tensor* tensor);

/* Elements to and from memory of the host, where they lie contiguously and take exactly `bytes` bytes; the tensor may
 * have any strides and be on any device. */
LUTRA_API int lutra_tensor_copy_to(lutra_Tensor* tensor, void* host, size_t bytes);
LUTRA_API int lutra_tensor_copy_from(lutra_Tensor* tensor, const void* host, size_t bytes);

/* DLPack, without a copy, on the CPU and on CUDA. Import takes the struct over: its deleter is called when no tensor
 * needs the memory any more; on failure it stays the caller's. Work on it must be done (CUDA: synchronise before).
 * Export waits for work on the tensor; the caller, or whom it is given to, calls its deleter, from any thread. Until
 * then the tensor cannot be freed or grow. A tensor that requires grad is refused: share x:detach().
 * _unversioned is the struct from before version 1, as NumPy 1 and old capsules named "dltensor" have it. */
LUTRA_API int lutra_tensor_from_dlpack(lutra_State* S, struct DLManagedTensorVersioned* managed, lutra_Tensor** tensor);
LUTRA_API int lutra_tensor_to_dlpack(lutra_Tensor* tensor, struct DLManagedTensorVersioned** managed);
LUTRA_API int lutra_tensor_from_dlpack_unversioned(lutra_State* S, struct DLManagedTensor* managed,
                                                   lutra_Tensor** tensor);
LUTRA_API int lutra_tensor_to_dlpack_unversioned(lutra_Tensor* tensor, struct DLManagedTensor** managed);

/* -- Calls ----------------------------------------------------------------------------------------------------------
 */

enum {
  LUTRA_NIL = 0,
  LUTRA_BOOLEAN = 1,
  LUTRA_NUMBER = 2,
  LUTRA_INTEGER = 3, /* as an input any; as an output one that no double holds */
  LUTRA_STRING = 4,
  LUTRA_TENSOR = 5,
  LUTRA_INTEGERS = 6, /* input only: a list of sizes or dimensions, `length` of them */
  LUTRA_OTHER = 7,    /* inputs of callbacks only: a table, a function, ...; see lutra_register */
  LUTRA_TABLE = 8     /* `length` values: those with names are fields, the others make the list, in order */
};

/* A value. As an input with a name it is a keyword argument: those of a call go in its one trailing table. As an output
 * a tensor is the caller's to free; a string, terminated, is valid until the next call on the state. A table as an
 * input is an array of the caller's; as an output lutra_values_free frees it with all that is in it, names and strings
 * are valid until the next call. Tables in tables are possible, 16 deep. */
typedef struct lutra_Value {
  const char* name;
  int kind;
  size_t length; /* of a string, of integers */
  union {
    int boolean;
    double number;
    int64_t integer;
    const char* string;
    const int64_t* integers;
    lutra_Tensor* tensor;
    struct lutra_Value* values;
  } as;
} lutra_Value;

/* The value of a Lua expression that can be called: "step", "require('net').forward", a module, a compiled function. */
LUTRA_API int lutra_function(lutra_State* S, const char* expression, lutra_Function** function);
/* From any thread, also after the state was closed. NULL is allowed. */
LUTRA_API void lutra_function_free(lutra_Function* function);

/* Calls with n tensors, and stores m results: a tensor, or NULL for nil; a list of tensors counts as so many results;
 * further ones are dropped. Another result is an error. NULL as an input is nil. */
LUTRA_API int lutra_invoke(lutra_Function* function, lutra_Tensor* const* inputs, int n, lutra_Tensor** outputs, int m);
/* The same with values of all kinds. */
LUTRA_API int lutra_invoke_values(lutra_Function* function, const lutra_Value* inputs, int n, lutra_Value* outputs,
                                  int m);

/* An op by name: "matmul", "add_" (which writes its first input), "nn.functional.gelu"; whatever `lt` has. */
LUTRA_API int lutra_op(lutra_State* S, const char* name, lutra_Tensor* const* inputs, int n, lutra_Tensor** outputs,
                       int m);
LUTRA_API int lutra_op_values(lutra_State* S, const char* name, const lutra_Value* inputs, int n, lutra_Value* outputs,
                              int m);

/* Frees the tensors and tables of n outputs and makes them nil. */
LUTRA_API void lutra_values_free(lutra_Value* values, int n);

/* A function of the host. Inputs are borrowed: a tensor that is kept is retained, a string copied. Input i is also at
 * index i + 1 of the stack of lutra_lua(S), for what has the kind LUTRA_OTHER. *m is the room in outputs, at least 16,
 * and on return their number; tensors there pass to Lutra, strings are copied on return, tables stay the host's with
 * all that is in them. It returns LUTRA_OK, or any other code, which becomes a Lua error with the text of lutra_fail.
 * It may call all functions on the state but lutra_close. What leaves it by lua_error(lutra_lua(S)), or in C++ as a
 * std::exception, becomes a Lua error. To pass the error of a call on it returns lutra_fail(S, lutra_error(S)). It must
 * not leave by longjmp: the state could not tell that the call has ended. */
typedef int (*lutra_Callback)(lutra_State* S, void* arg, const lutra_Value* inputs, int n, lutra_Value* outputs,
                              int* m);

/* Makes callback the Lua global `name`; "host.clock" is the field of a table, made where there is none. It takes the
 * place of what the name had. callback and arg must stay usable until the state is closed. */
LUTRA_API int lutra_register(lutra_State* S, const char* name, lutra_Callback callback, void* arg);

/* -- Ops of the host: as Lua functions they stay in a compiled function's graph, each as one node. */

typedef struct lutra_Shape {
  int dtype, ndim;
  int64_t sizes[LUTRA_MOST_DIMS];
} lutra_Shape;

/* What the three rules of an op get: inputs as the schema lists them, defaults filled in. A Tensor[] is a LUTRA_TABLE,
 * an absent optional LUTRA_NIL. Tensors are contiguous, on the CPU, and valid until the rule returns: their data is
 * NULL afterwards. Each rule returns LUTRA_OK, or any other code, which becomes a Lua error with the text of
 * lutra_fail. In C++ a std::exception that leaves it becomes a Lua error. It must not longjmp out. Functions with a
 * state, lutra_fail excepted, are LUTRA_ERROR_STATE within. Results depend on inputs alone: a call whose inputs are
 * those of an earlier one may be left out, a failing one made twice. Rules of several states may run at once. */
typedef struct lutra_OpCallbacks {
  size_t size; /* sizeof(lutra_OpCallbacks) of the caller, as of lutra_Options */
  /* Fills in the m results, which are all as the first tensor beforehand. Tensors have no data yet, floats are
   * LUTRA_NIL: sizes cannot depend on them. It is asked once for the sizes and dtypes of a call in a compiled function,
   * at each call elsewhere. NULL: they stay as the first tensor. */
  int (*shape)(lutra_State* S, void* arg, const lutra_Value* inputs, int n, lutra_Shape* results, int m);
  /* Writes the results' elements; inputs are only read. */
  int (*kernel)(lutra_State* S, void* arg, const lutra_Value* inputs, int n, lutra_Tensor* const* results, int m);
  /* Writes input_gradients, one a tensor of the inputs, those of lists one after the other: as the tensor, NULL where
   * none is wanted. gradients are those of the results, NULL where a result is not of floats. It is an op of its own,
   * which has no gradient. NULL: the op has none. */
  int (*gradient)(lutra_State* S, void* arg, const lutra_Value* inputs, int n, lutra_Tensor* const* results,
                  lutra_Tensor* const* gradients, int m, lutra_Tensor* const* input_gradients);
  void* arg;
} lutra_OpCallbacks;

/* Makes an op: "blur(Tensor x, *, int radius=2) -> Tensor" is lt.ops.blur(x, {radius = 3}) from then on,
 * "image::blur(...)" lt.ops.image.blur. Types are Tensor, Tensor?, Tensor[], int, int[], float (at most 8), bool and
 * str; '?' allows nil, what follows '*' is given by name only. Up to 8 results: "-> (Tensor, Tensor)". A name can be
 * taken once. */
LUTRA_API int lutra_register_op(lutra_State* S, const char* schema, const lutra_OpCallbacks* callbacks);

/* Sets the text of the error that a callback is about to return; returns LUTRA_ERROR_RUN. */
LUTRA_API int lutra_fail(lutra_State* S, const char* message);

/* Loads a state dictionary, a .safetensors, .npz or .npy file or the bytes of a .safetensors file, into what a Lua
 * expression names: module:load_state_dict(...). Where it does not fit, nothing changes and the error tells all that
 * is wrong. */
LUTRA_API int lutra_load_state(lutra_State* S, const char* module, const char* path);
LUTRA_API int lutra_load_state_memory(lutra_State* S, const char* module, const void* data, size_t bytes);

/* -- Beside LuaJIT's own API ----------------------------------------------------------------------------------------
 */

/* The Lua state, to be used with LuaJIT's own API; within a callback the coroutine that called it. */
LUTRA_API struct lua_State* lutra_lua(lutra_State* S);

/* Calls the function on the Lua stack below its nargs arguments, as lua_pcall with a traceback handler: results or
 * nothing are left. nresults -1: all. */
LUTRA_API int lutra_call(lutra_State* S, int nargs, int nresults);

/* Pushes a tensor onto the Lua stack (NULL: nil); the tensor at index of the Lua stack, a reference more. */
LUTRA_API int lutra_push_tensor(lutra_State* S, lutra_Tensor* tensor);
LUTRA_API int lutra_to_tensor(lutra_State* S, int index, lutra_Tensor** tensor);

/* What `require "lutra"` calls in a stock LuaJIT: leaves the module table on the stack. */
LUTRA_API int luaopen_lutra(struct lua_State* L);

#ifdef __cplusplus
}
#endif

#endif
