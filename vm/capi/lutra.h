/* lutra.h: the C API of Lutra, for hosts that embed it. Plain C89.
 *
 *   lutra_State *S = lutra_open(NULL);
 *   if (!S) { fprintf(stderr, "%s\n", lutra_error(NULL)); return 1; }
 *   if (lutra_do_string(S, "print(lt.ones(2, 2):sum())", "=example") != LUTRA_OK)
 *     fprintf(stderr, "%s\n", lutra_error(S));
 *   lutra_close(S);
 *
 * Functions that can fail return one of the codes below; lutra_error tells what happened. No C++ exception and no Lua
 * error leaves these functions. A state is used by one thread at a time; several states may run in several threads.
 * The host links LuaJIT (its lua_* functions) beside this library.
 */
#ifndef LUTRA_H
#define LUTRA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUTRA_VERSION "0.1.0"

#if defined(__GNUC__)
#define LUTRA_API __attribute__((visibility("default")))
#else
#define LUTRA_API
#endif

struct lua_State;
typedef struct lutra_State lutra_State;

enum {
  LUTRA_OK = 0,
  LUTRA_ERROR_RUN = 1,    /* the program raised an error */
  LUTRA_ERROR_SYNTAX = 2, /* it did not compile */
  LUTRA_ERROR_FILE = 3,   /* the file could not be read */
  LUTRA_ERROR_MEMORY = 4  /* out of memory */
};

typedef struct lutra_Options {
  size_t size;           /* sizeof(lutra_Options) of the caller; members it does not know are as if zero */
  const char* device;    /* where tensors are made by default: NULL or "cpu", "cuda:0" */
  int no_global;         /* do not set the global `lt` (scripts use require "lutra") */
  int ignore_env;        /* do not read LUA_PATH and the like */
  struct lua_State* lua; /* open Lutra in this state of the host, whose Lua libraries are open; lutra_close leaves it */
} lutra_Options;

/* A state with Lua's and Lutra's libraries open; NULL on failure (lutra_error(NULL) tells why). options may be NULL. */
LUTRA_API lutra_State* lutra_open(const lutra_Options* options);

/* Closes the state and everything in it. NULL is allowed. */
LUTRA_API void lutra_close(lutra_State* S);

/* Runs a text. chunkname is how errors name it: "=name" as it is, "@file" as a file; NULL shows the text's first line.
 */
LUTRA_API int lutra_do_string(lutra_State* S, const char* text, const char* chunkname);

/* Runs a file with arguments: `...` in it, and the global table `arg` (arg[0] is the path). path NULL reads standard
 * input. */
LUTRA_API int lutra_do_file(lutra_State* S, const char* path, int argc, const char* const* argv);

/* Calls the function on the Lua stack below its nargs arguments, as lua_pcall with a traceback handler: results or
 * nothing are left. */
LUTRA_API int lutra_call(lutra_State* S, int nargs, int nresults);

/* The last error of this state: "FILE:LINE: message" and a traceback. Of this thread's last lutra_open where S is NULL.
 * Valid until the next call; never NULL. */
LUTRA_API const char* lutra_error(const lutra_State* S);

/* The Lua state, to be used with LuaJIT's own API. */
LUTRA_API struct lua_State* lutra_lua(lutra_State* S);

/* LUTRA_VERSION of the library that is running. */
LUTRA_API const char* lutra_version(void);

/* What `require "lutra"` calls in a stock LuaJIT: leaves the module table on the stack. */
LUTRA_API int luaopen_lutra(struct lua_State* L);

#ifdef __cplusplus
}
#endif

#endif
