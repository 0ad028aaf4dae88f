// Tests that a tensor is one userdata in each Lua state, whichever states hold it, and on whichever threads they run.
#include <atomic>
#include <catch2/catch.hpp>
#include <lua.hpp>
#include <thread>
#include <vector>

#include "vm/capi/lutra.h"

namespace {

// A state with a tensor that `kept` refers to, or that only C++ holds.
struct Holder {
  lutra_State* S = lutra_open(nullptr);
  lua_State* L = lutra_lua(S);
  ~Holder() { lutra_close(S); }

  const void* push(lutra_Tensor* t) {
    lutra_push_tensor(S, t);
    const void* userdata = lua_topointer(L, -1);
    lua_pop(L, 1);
    return userdata;
  }
  void keep(lutra_Tensor* t) {
    lutra_push_tensor(S, t);
    lua_setglobal(L, "kept");
  }
  void drop() {
    lua_pushnil(L);
    lua_setglobal(L, "kept");
    lua_gc(L, LUA_GCCOLLECT, 0);
  }
  bool holds(lutra_Tensor* t) {
    lua_getglobal(L, "kept");
    const void* kept = lua_topointer(L, -1);
    lua_pop(L, 1);
    return kept && push(t) == kept;
  }
};

lutra_Tensor* make(lutra_State* S) {
  lutra_Tensor* t = nullptr;
  const int64_t size = 3;
  REQUIRE(lutra_tensor_empty(S, LUTRA_FLOAT32, 1, &size, nullptr, &t) == LUTRA_OK);
  return t;
}

}  // namespace

TEST_CASE("a tensor is one userdata in each of two states", "[modes]") {
  Holder a, b;
  lutra_Tensor* t = make(a.S);
  a.keep(t), b.keep(t);
  CHECK(a.holds(t));
  CHECK(b.holds(t));
  for (int round = 0; round < 3; round++) {
    Holder& first = round % 2 ? a : b;
    Holder& second = round % 2 ? b : a;
    first.drop();
    CHECK(second.holds(t));
    first.keep(t);
    CHECK(first.holds(t));
    CHECK(second.holds(t));
    first.drop(), second.drop();
    second.keep(t), first.keep(t);
    CHECK(first.holds(t));
    CHECK(second.holds(t));
  }
  lutra_tensor_free(t);
}

TEST_CASE("a tensor that outlives its state is a userdata of the next", "[modes]") {
  lutra_Tensor* t = nullptr;
  {
    Holder a;
    t = make(a.S);
    a.keep(t);
  }
  for (int i = 0; i < 3; i++) {
    Holder b;
    b.keep(t);
    CHECK(b.holds(t));
  }
  lutra_tensor_free(t);
}

TEST_CASE("a dying userdata is not pushed again", "[modes]") {
  Holder a;
  lutra_Tensor* t = make(a.S);
  a.keep(t);
  lua_pushlightuserdata(a.L, &a);
  lua_setglobal(a.L, "holder");
  lua_pushlightuserdata(a.L, t);
  lua_setglobal(a.L, "tensor");
  lua_pushcfunction(a.L, [](lua_State* L) {
    lua_getglobal(L, "holder");
    lua_getglobal(L, "tensor");
    static_cast<Holder*>(lua_touserdata(L, -2))->keep(static_cast<lutra_Tensor*>(lua_touserdata(L, -1)));
    return 0;
  });
  lua_setglobal(a.L, "keep_again");
  // Finalizers run in the opposite order of creation: this one before the tensor's.
  REQUIRE(lutra_do_string(a.S,
                          "local proxy = newproxy(true) getmetatable(proxy).__gc = keep_again proxy = nil "
                          "kept = nil collectgarbage() collectgarbage()",
                          "=test") == LUTRA_OK);
  CHECK(a.holds(t));
  REQUIRE(lutra_do_string(a.S, "assert(kept:numel() == 3)", "=test") == LUTRA_OK);
  lutra_tensor_free(t);
}

TEST_CASE("states on threads of their own share a tensor", "[modes]") {
  constexpr int kThreads = 4, kRounds = 300;
  Holder a;
  lutra_Tensor* t = make(a.S);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      Holder own;
      for (int round = 0; round < kRounds; round++) {
        own.keep(t);
        wrong += !own.holds(t);
        own.drop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  lutra_tensor_free(t);
}
