/* Settings are a state's own: what one sets, and that a sandbox opens, changes nothing for others that are open. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdlib.h>

#include "tests/host/check.h"
#include "vm/capi/lutra.h"

static lutra_State* open_with(const char* cache, int sandbox) {
  lutra_Options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options, options.cache = cache, options.sandbox = sandbox;
  return lutra_open(&options);
}

static void holds(lutra_State* S, const char* program) {
  if (lutra_do_string(S, program, "=program") == LUTRA_OK) return;
  ++failures;
  fprintf(stderr, "FAILED %s: %s\n", program, lutra_error(S));
}

/* Of folder/segment. */
static int entries(const char* folder) {
  char path[100];
  int n = 0;
  struct dirent* entry;
  DIR* d;
  sprintf(path, "%s/segment", folder);
  d = opendir(path);
  while (d && (entry = readdir(d))) n += entry->d_name[0] != '.';
  if (d) closedir(d);
  return n;
}

/* A graph that no other has: entries are found by their text. */
static void compile(lutra_State* S, int number) {
  char program[200];
  sprintf(program, "local f = lt.compile(function(x) return x * %d + %d end) assert(f(lt.ones(2)):sum():item() == %d)", number,
          number, 4 * number);
  holds(S, program);
}

static void kept_code(const char* folder) {
  lutra_State *keeps = open_with("on", 0), *confined, *off;
  char program[100];
  compile(keeps, 2);
  check(entries(folder) == 1, "code is kept");
  confined = open_with("on", 1), off = open_with("off", 0);
  holds(keeps, "assert(lt.config.cache == 'on')");
  holds(confined, "assert(lt.config.cache == 'read')");
  holds(off, "assert(lt.config.cache == 'off')");
  compile(off, 3), compile(confined, 4), compile(confined, 2);
  check(entries(folder) == 1, "neither a sandbox nor a state without a cache keeps code");
  compile(keeps, 5);
  check(entries(folder) == 2, "it still does beside them");
  sprintf(program, "lt.config.cache_dir = '%s/own'", folder);
  holds(keeps, program);
  compile(keeps, 6);
  check(entries(folder) == 2, "a folder of its own");
  holds(off, "lt.config.cache = 'on'");
  compile(off, 7);
  check(entries(folder) == 3, "the folder of the others is as it was");
  lutra_close(confined), lutra_close(off), lutra_close(keeps);
}

static void others(void) {
  lutra_State *first = open_with(NULL, 0), *second;
  holds(first, "lt.set_num_threads(1) lt.config.isa = 'interp' lt.config.cache_mb = 7");
  second = open_with(NULL, 0);
  holds(second, "threads = lt.get_num_threads() lt.set_num_threads(3)");
  holds(first, "assert(lt.get_num_threads() == 1 and lt.config.isa == 'interp' and lt.config.cache_mb == 7)");
  holds(second, "assert(lt.get_num_threads() == 3 and lt.config.isa ~= 'interp' and lt.config.cache_mb == 1024)");
  lutra_close(first);
  holds(second, "assert(lt.get_num_threads() == 3)");
  lutra_close(second);
}

int main(void) {
  char folder[] = "/tmp/lutra_settings_XXXXXX", command[64];
  if (!mkdtemp(folder)) return 1;
  setenv("LUTRA_CACHE_DIR", folder, 1);
  unsetenv("LUTRA_CACHE");
  kept_code(folder);
  others();
  check(open_with("often", 0) == NULL && strstr(lutra_error(NULL), "cache must be one of on|read|off"), "a wrong choice");
  sprintf(command, "rm -rf %s", folder);
  check(system(command) == 0, "the folder is removed");
  return failures;
}
