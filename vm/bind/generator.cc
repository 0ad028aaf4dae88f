// generator=: uses a generator made by lt.Generator instead of lt's default one.
#include <lua.hpp>

#include "vm/bind/functions.h"
#include "vm/bind/lua_reader.h"

namespace lutra {

GeneratorScope::GeneratorScope(const std::string& fn, ArgReader& in, const ExtraKeyword& keyword)
    : saved_(default_generator()) {
  if (keyword.value < 0) return;
  auto* reader = dynamic_cast<LuaReader*>(&in);
  if (!reader) throw NeedsData(fn + ": the state of a generator= is read");
  const auto field = [&](const char* name) {
    if (in.kind(keyword.value) != LuaKind::kTable || in.kind(in.field(keyword.value, name)) != LuaKind::kNumber) {
      fail(fn, ": argument 'generator' must be made by lt.Generator, got ", in.describe(keyword.value));
    }
    return in.number(in.field(keyword.value, name)).to_double();
  };
  const double seed = field("seed"), call = field("call");
  default_generator() = {uint64_t(int64_t(seed)), uint64_t(call)};
  L_ = reader->state(), table_ = keyword.value + 1;
}

GeneratorScope::~GeneratorScope() {
  if (L_) default_generator() = saved_;
}

void GeneratorScope::keep() {
  if (!L_) return;
  lua_pushnumber(L_, double(default_generator().next_call));
  lua_setfield(L_, table_, "call");
}

}  // namespace lutra
