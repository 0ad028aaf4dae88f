// A Lua state with portals whose behaviour a test sets: patches functions of the corpus and compares their results.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "tests/bytecode/lua_state.h"
#include "vm/bytecode/analysis.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {

class PortalHarness : public LuaState {
 public:
  explicit PortalHarness(const std::string& jit_mode = "off", bool with_mirror = true) {
    current = this;
    if (!with_mirror) mirror::set_unavailable(L);
    install_portals(L, [](lua_State* L, int id) -> int {
      ++current->calls;
      auto it = current->portals.find(id);
      return it == current->portals.end() ? 0 : it->second(L);
    });
    if (jit_mode == "off") run("jit.off()");
    if (jit_mode == "hot") run("jit.opt.start('hotloop=1', 'hotexit=1')");
    run_file("tests/portal/show.lua");
    lua_setglobal(L, "show");
    lua_settop(L, 0);
  }
  ~PortalHarness() { current = nullptr; }

  // Calls the function at `index` with arguments from the case table on top (elements 3 on), `rounds` times; the texts
  // of all results. The stack is as before.
  std::string results(int index, int case_index, int rounds = 6) {
    std::string out;
    for (int r = 0; r < rounds; ++r) {
      const int top = lua_gettop(L);
      lua_getglobal(L, "show");
      lua_pushvalue(L, index);
      const int n = static_cast<int>(lua_objlen(L, case_index));
      for (int i = 3; i <= n; ++i) lua_rawgeti(L, case_index, i);
      if (lua_pcall(L, std::max(n - 1, 1), 1, 0)) out += "error: ";
      out += lua_tostring(L, -1) ? lua_tostring(L, -1) : "?";
      out += "\n";
      lua_settop(L, top);
    }
    return out;
  }

  // Runs f(name, function index, case index) for every case of the corpus.
  template <class F>
  void each_case(F f) {
    lua_settop(L, 0);
    run_file("tests/bytecode/corpus.lua");
    for (int i = 1; i <= static_cast<int>(lua_objlen(L, 1)); ++i) {
      lua_settop(L, 1);
      lua_rawgeti(L, 1, i);
      lua_rawgeti(L, 2, 1);
      const std::string name = lua_tostring(L, -1);
      lua_pop(L, 1);
      lua_rawgeti(L, 2, 2);
      f(name, 3, 2);
    }
  }

  static PortalHarness* current;
  std::map<int, std::function<int(lua_State*)>> portals;
  int calls = 0;
};

inline const char* const kJitModes[] = {"off", "on", "hot"};

}  // namespace lutra
