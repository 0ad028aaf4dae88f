// Capture as golden text: bytecode in; graphs, guards and breaks out.
#include "jit/graph/graph.h"
#include "tests/host/lutra_state.h"
#include "vm/bytecode/analysis.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

// Runs case `i` of the list at stack index 1 under lt.explain and gives what it says.
const char kReport[] = R"lua(
  local lt, case = require "lutra", ...
  local e = lt.explain(case[2])(unpack(case, 3))
  local lines = {e.graph_count .. " graphs, " .. e.graph_break_count .. " breaks, " .. e.op_count .. " ops"}
  for _, g in ipairs(e.graphs) do lines[#lines + 1] = tostring(g):gsub("%s+$", "") end
  lines[#lines + 1] = "guards"
  for _, g in ipairs(e.out_guards) do
    lines[#lines + 1] = ("  %s %s: %s ; line %s"):format(g.kind, g.source, tostring(g.expected), tostring(g.line))
  end
  for _, b in ipairs(e.break_reasons) do lines[#lines + 1] = ("break: %s (%s), line %s"):format(b.reason, b.kind, b.line) end
  return table.concat(lines, "\n")
)lua";

void must(lua_State* L, int status) {
  if (status) FAIL(lua_tostring(L, -1));
}

std::string report(lua_State* L, int i) {
  lua_settop(L, 1);
  must(L, luaL_loadbuffer(L, kReport, sizeof kReport - 1, "=report"));
  lua_rawgeti(L, 1, i);
  must(L, lua_pcall(L, 1, 1, 0));
  const std::string text = lua_tostring(L, -1);
  lua_rawgeti(L, 1, i);
  lua_rawgeti(L, -1, 1);
  std::string out = std::string("== ") + lua_tostring(L, -1) + "\n";
  lua_rawgeti(L, -2, 2);
  const bc::Dump dump = dump_function(L, lua_gettop(L));
  return out + bc::print(dump.protos.back()) + text + "\n\n";
}

}  // namespace

TEST_CASE("captures give their golden texts", "[capture]") {
  LutraState state;
  lua_State* L = state.L;
  const std::string cases = read_text("tests/capture/cases.lua");
  must(L, luaL_loadbuffer(L, cases.data(), cases.size(), "=cases.lua"));
  must(L, lua_pcall(L, 0, 1, 0));
  const int count = int(lua_objlen(L, 1));
  std::string text;
  for (int i = 1; i <= count; i++) text += report(L, i);
  CHECK(count > 10);
  for (size_t at = text.find("graph {"); at != std::string::npos; at = text.find("graph {", at + 1)) {
    const std::string graph = text.substr(at, text.find("\n}\n", at) + 3 - at);
    CHECK(print(*parse_graph(graph)) == graph);
  }
  check_golden("capture/cases.txt", text);
}

}  // namespace lutra
