/* lutra.h: the C API of Lutra, for hosts that embed it. Plain C89 with <stdint.h>. docs/embedding.md teaches it.
 *
 *   lutra_State *S = lutra_open(NULL);
 *   if (!S) { fprintf(stderr, "%s\n", lutra_error(NULL)); return 1; }
 *   if (lutra_do_string(S, "print(lt.ones(2, 2):sum())", "=example") != LUTRA_OK)
 *     fprintf(stderr, "%s\n", lutra_error(S));
 *   lutra_close(S);
 *
 * Errors: a function that returns int returns LUTRA_OK or one of the error codes below; lutra_error returns the
 * message. No C++ exception and no Lua error leaves these functions. Passing NULL for a required pointer is an error,
 * and so is using a closed state. A function that cannot return an error code then does nothing.
 *
 * Threads: only one thread may use a state at a time. A call from a second thread meanwhile fails with
 * LUTRA_ERROR_STATE. Only lutra_interrupt may be called at any time. Several states may run in several threads.
 *
 * Tensors: a lutra_Tensor is a counted reference. It belongs to no state: it may go to another thread and outlive the
 * state that made it. The caller that receives a reference frees it. Tensors have no lock: the host must make sure that
 * no thread reads a tensor while another thread writes it.
 *
 * Linking: the host also links LuaJIT, which provides the lua_* functions that this library calls.
 */
#ifndef LUTRA_H
#define LUTRA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUTRA_VERSION "0.1.0"

/* Increases by one with every change that breaks programs compiled against an older header. Additions do not change
 * it. */
#define LUTRA_ABI 1

#if defined(__GNUC__)
#define LUTRA_API __attribute__((visibility("default")))
#else
#define LUTRA_API
#endif

struct lua_State;
struct DLManagedTensor;          /* from dlpack.h, before version 1 */
struct DLManagedTensorVersioned; /* from dlpack.h, version 1 */

typedef struct lutra_State lutra_State;
typedef struct lutra_Tensor lutra_Tensor;
typedef struct lutra_Function lutra_Function;

enum {
  LUTRA_OK = 0,
  LUTRA_ERROR_RUN = 1,      /* the program raised an error */
  LUTRA_ERROR_SYNTAX = 2,   /* the program does not compile */
  LUTRA_ERROR_FILE = 3,     /* the file could not be read */
  LUTRA_ERROR_MEMORY = 4,   /* out of memory */
  LUTRA_ERROR_LIMIT = 5,    /* a limit was reached, or lutra_interrupt was called */
  LUTRA_ERROR_ARGUMENT = 6, /* an argument of the call is wrong: NULL, a size, a dtype, a name */
  LUTRA_ERROR_STATE = 7     /* the state is closed, or in use by another thread */
};

/* -- States ----------------------------------------------------------------------------------------------------- */

/* Receives text that a program writes. The text is not null-terminated. */
typedef void (*lutra_Writer)(void* arg, const char* text, size_t length);

/* Reads a file that a sandboxed program asks for: passes its bytes to sink(sink_arg, bytes, size), in one call or in
 * several. Returns LUTRA_OK, or any other code if the program may not have such a file. */
typedef int (*lutra_FileReader)(void* arg, const char* name, lutra_Writer sink, void* sink_arg);

/* The host's allocator for the elements of CPU tensors. Lutra allocates the working memory of ops itself. allocate
 * returns a block aligned to `alignment` (64), or NULL. After NULL Lutra collects garbage and calls allocate once more;
 * if that returns NULL too, the call fails with LUTRA_ERROR_MEMORY. Lutra calls allocate on threads that use the state.
 * It calls free on any thread, also after the state was closed: the thread that releases a tensor's last reference
 * calls it. Neither function may call a function that takes a state. */
typedef struct lutra_Allocator {
  void* (*allocate)(void* arg, size_t bytes, size_t alignment); /* NULL: Lutra allocates */
  void (*free)(void* arg, void* block, size_t bytes);
  void* arg;
} lutra_Allocator;

/* The host's thread pool, which replaces Lutra's. run calls task(task_arg, i) once for each i in [0, n), on any
 * threads, and returns when all calls have returned. The calling thread may be one of them. Results do not depend on
 * the threads. */
typedef struct lutra_ThreadPool {
  void (*run)(void* arg, int n, void (*task)(void* task_arg, int i), void* task_arg); /* NULL: Lutra's own threads */
  void* arg;
  int count; /* the number of tasks that run at once: 1 to 255 */
} lutra_ThreadPool;

typedef struct lutra_Options {
  size_t size; /* sizeof(lutra_Options) as the caller was compiled; smaller than in the first version is an error */
  const char* device;    /* the default device of new tensors: "cpu" (as NULL) or "cuda:0" */
  int no_global;         /* do not set the global `lt` (scripts use require "lutra") */
  int ignore_env;        /* do not read LUA_PATH and the like */
  struct lua_State* lua; /* open Lutra in this Lua state of the host, with Lua's libraries already open; lutra_close
                            does not close it */
  lutra_Writer output;   /* receives what print, io.write and io.stdout:write write; NULL: standard output */
  void* output_arg;
  lutra_Writer error_output; /* receives what io.stderr:write writes; NULL: standard error */
  void* error_output_arg;
  lutra_Writer log; /* receives the LUTRA_LOGS lines of this state; NULL: standard error */
  void* log_arg;
  int no_interrupt; /* lutra_interrupt does nothing, and Lutra uses signals only for calls with limits */
  /* Confines programs. They have no ffi, io, os, debug, jit, bytecode, native modules or environments of other
   * functions, and cannot reach addresses of elements, files or settings of the process. They use compiled code from
   * the disk cache but write none. lt.empty and similar functions clear their memory. require and lt.load call
   * read_file; if it is NULL, they find no file. A sandbox sets no limits by itself: the host calls lutra_set_limits.
   * Cannot be combined with `lua`. */
  int sandbox;
  lutra_FileReader read_file;
  void* read_file_arg;
  lutra_Allocator allocator;
  lutra_ThreadPool threads;
  const char* cache; /* the disk cache of compiled code: "on" reads and writes it, "read" only reads it, "off"; NULL: as
                        the environment variable LUTRA_CACHE says. A sandbox never writes it */
} lutra_Options;

/* Returns a state with Lua's and Lutra's libraries open, or NULL on failure (then lutra_error(NULL) returns the
 * message). options may be NULL. */
LUTRA_API lutra_State* lutra_open(const lutra_Options* options);

/* Closes the state and frees everything in it; tensors that the host holds stay valid. Does nothing if S is NULL or
 * already closed, within a callback of the state, or while another thread uses the state. */
LUTRA_API void lutra_close(lutra_State* S);

/* Stops what runs in the state by raising an error in it (LUTRA_ERROR_LIMIT, "interrupted!"). It stops Lua code, ops,
 * compilation, and kernels between their parts. A program that catches the error receives it again 0.2 s later, until
 * the call ends; the state stays usable. Does nothing if nothing runs. Any thread and any signal handler may call it
 * while the state is open. For that reason it stores no message: it only returns LUTRA_ERROR_STATE if the state is not
 * open. Loops in LuaJIT's machine code poll for an interrupt in only one state of a process, the first one that is
 * open; this uses LuaJIT's profiler (SIGPROF). In other states such a loop stops when it next calls an op or leaves the
 * machine code. Lutra uses the signal SIGRTMIN + 7. */
LUTRA_API int lutra_interrupt(lutra_State* S);

typedef struct lutra_Limits {
  size_t size;    /* sizeof(lutra_Limits) as the caller was compiled, as in lutra_Options */
  double seconds; /* wall-clock time of each call that runs a program; 0: no limit */
  uint64_t bytes; /* bytes that the state may hold: its tensors and Lua's heap together; 0: no limit */
  int threads;    /* threads that an op may use, including the calling one; 0: as many as the settings allow */
} lutra_Limits;

/* Sets the limits of each later call; NULL removes them. A call that exceeds `seconds` stops as by lutra_interrupt,
 * with the message "limits: n seconds are over". An allocation fails at once if its block could not be filled in the
 * time that is left. If an allocation would exceed `bytes`, Lutra collects garbage and then refuses it: the call ends
 * with "limits: n bytes are used up", unless the program catches that error. Memory of the host is not counted. Limits
 * that a callback sets hold for the calls that it makes from then on, in addition to the limits of the call that runs.
 * In Lua lt.limits{seconds = n, bytes = n, threads = n}(f, ...) sets limits for one call of f. */
LUTRA_API int lutra_set_limits(lutra_State* S, const lutra_Limits* limits);

/* Returns the last error of this state: "FILE:LINE: message" and, if Lua code was running, a traceback. If S is NULL,
 * or this thread cannot use it, returns the error of this thread's last failed call that had no state to store it in
 * (lutra_open, functions of tensors, LUTRA_ERROR_STATE). The text is valid until the next call; it is never NULL. It
 * means something only after a failure: calls that succeed do not change it. */
LUTRA_API const char* lutra_error(const lutra_State* S);

/* Return LUTRA_VERSION and LUTRA_ABI of the library that is running. */
LUTRA_API const char* lutra_version(void);
LUTRA_API int lutra_abi(void);

/* -- Programs ----------------------------------------------------------------------------------------------------- */

/* Runs a program given as text. chunkname is its name in errors: "=name" is shown as it is, "@file" as a file name;
 * NULL shows the first line of the text. */
LUTRA_API int lutra_do_string(lutra_State* S, const char* text, const char* chunkname);

/* Runs a file. The program receives argv as `...` and in the global table `arg` (arg[0] is the path). If path is NULL,
 * runs standard input. */
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

/* Returns the name of a dtype: "float32" for LUTRA_FLOAT32. Returns NULL if dtype is not one of the constants above. */
LUTRA_API const char* lutra_dtype_name(int dtype);

/* The largest number of dimensions of a tensor. */
#define LUTRA_MAX_DIMS 16

/* Frees the memory of a tensor. It is called when no tensor needs the memory any more, on any thread. It must not call
 * a function that takes a state. */
typedef void (*lutra_Deleter)(void* data, void* arg);

/* Makes a tensor over memory of the host without copying it: each side sees what the other one writes. sizes and
 * strides are in elements; if strides is NULL, the tensor is contiguous (the last dimension has stride 1). If device is
 * NULL, the memory is on the CPU. With "cuda:N", data is an address in that GPU's memory, and all work on it must have
 * finished. The memory must stay valid until the deleter is called; without a deleter, as long as any tensor over it
 * lives, including views and tensors that a script kept. If the function fails, it does not call the deleter. */
LUTRA_API int lutra_tensor_from_memory(lutra_State* S, void* data, int dtype, int ndim, const int64_t* sizes,
                                       const int64_t* strides, const char* device, lutra_Deleter deleter, void* arg,
                                       lutra_Tensor** tensor);

/* Makes a contiguous tensor with memory of its own, which is not initialised. */
LUTRA_API int lutra_tensor_empty(lutra_State* S, int dtype, int ndim, const int64_t* sizes, const char* device,
                                 lutra_Tensor** tensor);

/* Add a reference (and return tensor); release a reference. tensor may be NULL. Any thread may call them. */
LUTRA_API lutra_Tensor* lutra_tensor_retain(lutra_Tensor* tensor);
LUTRA_API void lutra_tensor_free(lutra_Tensor* tensor);

/* Return the properties of a tensor; for NULL they return -1 or NULL. The arrays have ndim elements and are
 * valid until the next call for this reference. lutra_tensor_data returns the address of the first element (on a GPU,
 * an address in its memory), or NULL after the tensor's memory was freed (x:free()). The address is valid while the
 * tensor lives and keeps its memory (resize_ and x.data = y replace it). On the CPU the elements are complete when the
 * call that made them has returned. On a GPU use lutra_tensor_copy_to or lutra_tensor_to_dlpack, which wait for
 * them. */
LUTRA_API int lutra_tensor_ndim(const lutra_Tensor* tensor);
LUTRA_API const int64_t* lutra_tensor_sizes(lutra_Tensor* tensor);
LUTRA_API const int64_t* lutra_tensor_strides(lutra_Tensor* tensor);
LUTRA_API int64_t lutra_tensor_numel(const lutra_Tensor* tensor);
LUTRA_API int lutra_tensor_dtype(const lutra_Tensor* tensor);
LUTRA_API const char* lutra_tensor_device(lutra_Tensor* tensor);
LUTRA_API void* lutra_tensor_data(const lutra_Tensor* tensor);

/* Copy the elements to or from contiguous memory of the host, which has exactly `bytes` bytes. The tensor may have any
 * strides and be on any device. */
LUTRA_API int lutra_tensor_copy_to(lutra_Tensor* tensor, void* host, size_t bytes);
LUTRA_API int lutra_tensor_copy_from(lutra_Tensor* tensor, const void* host, size_t bytes);

/* Exchange tensors by DLPack without a copy, on the CPU and on CUDA. Import takes ownership of the struct: Lutra calls
 * its deleter when no tensor needs the memory any more. If import fails, the caller still owns the struct. Work on the
 * memory must have finished before import (on CUDA, synchronise first). Export waits for work on the tensor. The
 * consumer of the struct calls its deleter, from any thread; until then the tensor cannot be freed or grow. A tensor
 * that requires grad is refused: export x:detach(). The functions with _unversioned use the struct from before DLPack
 * version 1, as NumPy 1 and old capsules named "dltensor" do. */
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
  LUTRA_INTEGER = 3, /* as an input any integer; as an output a 64-bit integer cdata: Lutra makes one for an integer
                        below -2^53 or above 2^53 */
  LUTRA_STRING = 4,
  LUTRA_TENSOR = 5,
  LUTRA_INTEGERS = 6, /* inputs only: a list of `length` sizes or dimensions */
  LUTRA_OTHER = 7,    /* inputs of callbacks only: a table, a function, ...; see lutra_register */
  LUTRA_TABLE = 8     /* `length` values: named ones are fields, the others form the list, in order */
};

/* A value. An input with a name is a keyword argument: all named inputs of a call are passed in one table after the
 * others. The caller frees an output tensor. An output string is null-terminated and valid until the next call on the
 * state. An input table is an array of the caller. lutra_values_free frees an output table with everything in it; its
 * names and strings are valid until the next call. Tables may be nested, up to 16 deep. */
typedef struct lutra_Value {
  const char* name;
  int kind;
  size_t length; /* of a string, a list of integers or a table */
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

/* Evaluates a Lua expression whose value can be called: "step", "require('net').forward", a module, a compiled
 * function. */
LUTRA_API int lutra_function(lutra_State* S, const char* expression, lutra_Function** function);
/* Frees the handle. Any thread may call it, also after the state was closed. function may be NULL. */
LUTRA_API void lutra_function_free(lutra_Function* function);

/* Calls the function with n tensors and stores its first m results in outputs: a tensor, or NULL for nil. A NULL input
 * is passed as nil. If the only result is a list of tensors, its elements count as the results. Further results are
 * dropped. A result of another type is an error. */
LUTRA_API int lutra_invoke(lutra_Function* function, lutra_Tensor* const* inputs, int n, lutra_Tensor** outputs, int m);
/* The same for values of all kinds. */
LUTRA_API int lutra_invoke_values(lutra_Function* function, const lutra_Value* inputs, int n, lutra_Value* outputs,
                                  int m);

/* Calls an op by name: "matmul", "add_" (which writes its first input), "nn.functional.gelu"; any function in `lt`. */
LUTRA_API int lutra_op(lutra_State* S, const char* name, lutra_Tensor* const* inputs, int n, lutra_Tensor** outputs,
                       int m);
LUTRA_API int lutra_op_values(lutra_State* S, const char* name, const lutra_Value* inputs, int n, lutra_Value* outputs,
                              int m);

/* Frees the tensors and tables in n outputs and sets all outputs to nil. */
LUTRA_API void lutra_values_free(lutra_Value* values, int n);

/* A function of the host. It borrows its inputs: it must retain a tensor and copy a string that it keeps. Input i is
 * also at index i + 1 of the stack of lutra_lua(S), which gives access to inputs of kind LUTRA_OTHER. On entry *m is
 * the capacity of outputs, at least 16; on return it must be the number of outputs. Lutra takes ownership of output
 * tensors and copies output strings; the host keeps ownership of tables and everything in them. It returns LUTRA_OK, or
 * any other code, which becomes a Lua error with the message of lutra_fail. It may call all functions on the state
 * except lutra_close. An error that leaves it by lua_error(lutra_lua(S)), or in C++ as a std::exception, becomes a Lua
 * error. To pass on the error of a call on the state, it returns lutra_fail(S, lutra_error(S)). It must not leave by
 * longjmp: the state would not notice that the call has ended. */
typedef int (*lutra_Callback)(lutra_State* S, void* arg, const lutra_Value* inputs, int n, lutra_Value* outputs,
                              int* m);

/* Sets the Lua global `name` to callback. "host.clock" sets a field of a global table, which is created if it does not
 * exist. An older value of that name is replaced. callback and arg must stay valid until the state is closed. */
LUTRA_API int lutra_register(lutra_State* S, const char* name, lutra_Callback callback, void* arg);

/* -- Ops of the host. Programs call them as Lua functions. In a compiled function each call stays in the graph as one
 * node. */

typedef struct lutra_Shape {
  int dtype, ndim;
  int64_t sizes[LUTRA_MAX_DIMS];
} lutra_Shape;

/* The three rules of an op. Their inputs are in the order of the schema, with defaults filled in. A Tensor[] is a
 * LUTRA_TABLE, an absent optional is LUTRA_NIL. Tensors are contiguous, on the CPU, and valid until the rule returns;
 * afterwards their data is NULL. Each rule returns LUTRA_OK, or any other code, which becomes a Lua error with the
 * message of lutra_fail. In C++ a std::exception that leaves a rule becomes a Lua error. A rule must not leave by
 * longjmp. Within a rule, functions that take a state fail with LUTRA_ERROR_STATE, except lutra_fail. Results must
 * depend on the inputs alone: Lutra may skip a call with the same inputs as an earlier one, and may repeat a failed
 * call. Rules of several states may run at once. */
typedef struct lutra_OpCallbacks {
  size_t size; /* sizeof(lutra_OpCallbacks) as the caller was compiled, as in lutra_Options */
  /* Sets the sizes and dtypes of the m results, which are initialised to those of the first tensor. Input tensors have
   * no data yet, and floats are LUTRA_NIL: sizes cannot depend on them. In a compiled function Lutra calls it once for
   * each combination of input sizes and dtypes, elsewhere at each call. NULL: all results are like the first tensor. */
  int (*shape)(lutra_State* S, void* arg, const lutra_Value* inputs, int n, lutra_Shape* results, int m);
  /* Writes the elements of the results; it must only read the inputs. */
  int (*kernel)(lutra_State* S, void* arg, const lutra_Value* inputs, int n, lutra_Tensor* const* results, int m);
  /* Writes input_gradients. They have one element for each input tensor, with the tensors of a list one after the
   * other: a tensor of the same size and dtype, or NULL if that gradient is not wanted. gradients are those of the
   * results, NULL for a result that is not floating-point. The backward is an op of its own, which has no gradient.
   * NULL: the op has no gradient. */
  int (*gradient)(lutra_State* S, void* arg, const lutra_Value* inputs, int n, lutra_Tensor* const* results,
                  lutra_Tensor* const* gradients, int m, lutra_Tensor* const* input_gradients);
  void* arg;
} lutra_OpCallbacks;

/* Registers an op. "blur(Tensor x, *, int radius=2) -> Tensor" becomes lt.ops.blur(x, {radius = 3}), "image::blur(...)"
 * becomes lt.ops.image.blur. Types are Tensor, Tensor?, Tensor[], int, int[], float (at most 8), bool and str. '?'
 * allows nil; arguments after '*' are keyword-only. Up to 8 results are possible: "-> (Tensor, Tensor)". A name can be
 * registered only once. */
LUTRA_API int lutra_register_op(lutra_State* S, const char* schema, const lutra_OpCallbacks* callbacks);

/* Sets the message of the error that a callback is about to return. Returns LUTRA_ERROR_RUN. */
LUTRA_API int lutra_fail(lutra_State* S, const char* message);

/* Load a state dictionary into the module that a Lua expression names, by module:load_state_dict(...). The dictionary
 * is a .safetensors, .npz or .npy file, or the bytes of a .safetensors file. If it does not fit, the module stays
 * unchanged and the error lists every mismatch. */
LUTRA_API int lutra_load_state(lutra_State* S, const char* module, const char* path);
LUTRA_API int lutra_load_state_memory(lutra_State* S, const char* module, const void* data, size_t bytes);

/* -- Beside LuaJIT's own API ----------------------------------------------------------------------------------------
 */

/* Returns the Lua state, for use with LuaJIT's own API. Within a callback it is the coroutine that called the
 * callback. */
LUTRA_API struct lua_State* lutra_lua(lutra_State* S);

/* Calls the function that lies on the Lua stack below its nargs arguments, like lua_pcall with a traceback handler.
 * Leaves its results on the stack, or nothing if it fails. nresults -1 leaves all results. */
LUTRA_API int lutra_call(lutra_State* S, int nargs, int nresults);

/* Push a tensor (nil for NULL) onto the Lua stack; get a new reference to the tensor at index of the Lua stack. */
LUTRA_API int lutra_push_tensor(lutra_State* S, lutra_Tensor* tensor);
LUTRA_API int lutra_to_tensor(lutra_State* S, int index, lutra_Tensor** tensor);

/* The function that `require "lutra"` calls in a stock LuaJIT: pushes the module table. */
LUTRA_API int luaopen_lutra(struct lua_State* L);

#ifdef __cplusplus
}
#endif

#endif
