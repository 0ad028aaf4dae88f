// ArgReader over the Lua stack: handle h is stack slot h + 1; index and field push.
#pragma once
#include "vm/bind/binding.h"

struct lua_State;

namespace lutra {

class LuaReader final : public ArgReader {
 public:
  explicit LuaReader(lua_State* L);
  int count() const override { return count_; }
  LuaKind kind(H h) override;
  bool boolean(H h) override;
  Scalar number(H h) override;
  std::string string(H h) override;
  Tensor tensor(H h) override;
  int64_t length(H table) override;
  H index(H table, int64_t i) override;
  H field(H table, const char* key) override;
  std::vector<std::string> keys(H table) override;
  std::string describe(H h) override;
  H mark() override;
  void release(H mark) override;
  lua_State* state() const { return L_; }

 private:
  H pushed();
  lua_State* L_;
  int count_;
};

constexpr int kCdataType = 10;  // LUA_TCDATA, which LuaJIT does not publish

// Lua functions for what the C API cannot do. A chunk returns them; it runs at the first use in a state.
struct LuaFunctions {
  const char* name;  // the chunk's name
  std::string_view source;
  int count;

  void push(lua_State* L, int which) const;  // counted from 1
};

// Pushes an int64_t: as a number if exact, else as cdata of the ffi library.
void push_int64(lua_State* L, int64_t v);
// Reads an int64_t or uint64_t cdata at idx. Returns false for any other value.
bool to_int64_cdata(lua_State* L, int idx, int64_t* out);

// An array of numbers made by the ffi library (double[3], float[2][3]): element type, sizes and address.
struct CArray {
  DType dtype;
  Sizes sizes;
  const void* data;
};
bool to_c_array(lua_State* L, int idx, CArray* out);

}  // namespace lutra
