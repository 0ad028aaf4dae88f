// Decoded functions: one LuaCode for each prototype, shared by all traces.
#pragma once
#include <memory>
#include <optional>
#include <string_view>

#include "vm/bytecode/analysis.h"
#include "vm/bytecode/dump.h"

struct lua_State;

namespace lutra {

struct LuaCode {
  std::shared_ptr<bc::Dump> dump;
  uint32_t index = 0;                              // of the prototype in dump->protos
  const char* file = nullptr;                      // the name that short_src has; interned
  std::vector<std::unique_ptr<LuaCode>> children;  // by prototype index, made on demand

  bool is_builtin() const { return std::string_view(file).starts_with("[builtin:"); }  // LuaJIT's own
  const bc::Proto& proto() const { return dump->protos[index]; }
  const bc::Liveness& liveness() const;
  const std::vector<bc::Loop>& loops() const;
  // The loop whose head (FORI, ISNEXT or the JMP to ITERC) is at pc, or null.
  const bc::Loop* loop_at(bc::Pc pc) const;
  LuaCode* child(uint32_t proto_index);

 private:
  mutable std::optional<bc::Liveness> liveness_;
  mutable std::optional<std::vector<bc::Loop>> loops_;
};

std::unique_ptr<LuaCode> make_code(std::shared_ptr<bc::Dump> dump, uint32_t index);
// Decodes the Lua function at `index`; returns null for C functions.
std::unique_ptr<LuaCode> decode_function(lua_State* L, int index);

}  // namespace lutra
