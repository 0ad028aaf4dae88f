// Decodes functions from dumps into LuaCodes with their analyses.
#include "vm/capture/trace/code.h"

#include <algorithm>
#include <lua.hpp>

#include "ops/core/error.h"
#include "ops/core/intern.h"
#include "vm/mirror/prototypes.h"

namespace lutra {

namespace {

// Returns the short_src of a chunk name: "@file.lua" becomes file.lua, "=name" name, anything else [string "..."].
std::string short_name(const std::string& chunk) {
  if (!chunk.empty() && (chunk[0] == '@' || chunk[0] == '=')) return chunk.substr(1);
  size_t n = 0;
  while (n < LUA_IDSIZE - 12 && n < chunk.size() && static_cast<unsigned char>(chunk[n]) >= ' ') n++;
  const bool whole = n == chunk.size();
  return "[string \"" + chunk.substr(0, whole ? n : std::min<size_t>(n, LUA_IDSIZE - 15)) + (whole ? "\"]" : "...\"]");
}

// Returns whether a function belongs to LuaJIT's libraries and is written in bytecode. Its dump does not contain that.
bool is_builtin(lua_State* L, int index) {
  lua_Debug about;
  lua_pushvalue(L, index);
  lua_getinfo(L, ">S", &about);
  return std::string_view(about.short_src).starts_with("[builtin:");
}

// Restores the nils at the end of a constructor's array, which a dump leaves out. Without them {x, nil, y} would have
// another length.
void complete_templates(bc::Dump& dump, uint32_t index, const mirror::Proto* real) {
  bc::Proto& proto = dump.protos[index];
  if (proto.kgc.size() != real->sizekgc) return;
  for (size_t i = 0; i < proto.kgc.size(); i++) {
    const void* object = reinterpret_cast<const void*>(real->k[-1 - int64_t(i)]);
    if (auto* t = std::get_if<bc::Template>(&proto.kgc[i])) {
      const uint32_t size = static_cast<const mirror::Tab*>(object)->asize;
      if (t->array.size() < size) t->array.resize(size);
    } else if (auto* child = std::get_if<bc::Child>(&proto.kgc[i])) {
      complete_templates(dump, child->proto, static_cast<const mirror::Proto*>(object));
    }
  }
}

}  // namespace

const bc::Liveness& LuaCode::liveness() const {
  if (!liveness_) liveness_ = bc::liveness(proto());
  return *liveness_;
}

const std::vector<bc::Loop>& LuaCode::loops() const {
  if (!loops_) loops_ = bc::loops(proto());
  return *loops_;
}

const bc::Loop* LuaCode::loop_at(bc::Pc pc) const {
  for (const bc::Loop& l : loops()) {
    if (l.head == pc && l.kind != bc::Loop::Kind::kLoop) return &l;
  }
  return nullptr;
}

LuaCode* LuaCode::child(uint32_t proto_index) {
  if (children.size() <= proto_index) children.resize(proto_index + 1);
  if (!children[proto_index]) children[proto_index] = make_code(dump, proto_index);
  return children[proto_index].get();
}

std::unique_ptr<LuaCode> make_code(std::shared_ptr<bc::Dump> dump, uint32_t index) {
  auto code = std::make_unique<LuaCode>();
  code->file = intern(short_name(dump->chunkname));
  code->dump = std::move(dump);
  code->index = index;
  return code;
}

std::unique_ptr<LuaCode> decode_function(lua_State* L, int index) {
  if (!lua_isfunction(L, index) || lua_iscfunction(L, index)) return nullptr;
  try {
    auto dump = std::make_shared<bc::Dump>(dump_function(L, index));
    const auto top = static_cast<uint32_t>(dump->protos.size() - 1);
    if (mirror::available(L)) complete_templates(*dump, top, original_proto(L, index));
    auto code = make_code(std::move(dump), top);
    if (is_builtin(L, index)) code->file = intern("[builtin:" + code->dump->chunkname + "]");
    return code;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace lutra
