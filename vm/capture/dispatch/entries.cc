// A few entries are tried one by one. Many entries get a guard tree. Newer entries are tried before the tree, until
// these tries have cost as much as growing the tree again.
#include "vm/capture/dispatch/entries.h"

#include <algorithm>
#include <lua.hpp>

#include "jit/runtime/lines.h"
#include "vm/capture/dispatch/state.h"
#include "vm/guard/tree.h"

namespace lutra {

struct alignas(64) TreeMember {
  std::shared_ptr<Entry> entry;
  ReadLines lines;  // cache lines that a hit reads; empty until one was recorded
};
static_assert(sizeof(TreeMember) == 128);

struct EntryTree {
  std::vector<TreeMember> members;
  GuardTree tree;
  size_t tries = 0;  // tries of entries that are not members
  EntryTree(const std::vector<std::shared_ptr<Entry>>& entries, const std::vector<GuardTree::Member>& programs)
      : tree(programs) {
    for (const auto& e : entries) members.push_back({e, {}});
  }
};

namespace {

constexpr size_t kFew = 8;

std::shared_ptr<EntryTree> grow_tree(lua_State* L, const std::vector<std::shared_ptr<Entry>>& entries) {
  std::vector<GuardTree::Member> members;
  for (const auto& e : entries) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, e->constants);
    lua_rawgeti(L, LUA_REGISTRYINDEX, e->weak);
    const auto table = [&](int index) { return static_cast<const mirror::Tab*>(lua_topointer(L, index)); };
    members.push_back({&e->guards, table(-2), table(-1)});
    lua_pop(L, 2);
  }
  return std::make_shared<EntryTree>(entries, members);
}

// Returns how many of the entries, the newest, are in no tree.
size_t without_tree(lua_State* L, ProtoPoint& point) {
  constexpr size_t kTriesAnEntry = 8;
  const size_t n = point.entries.size();
  if (n <= kFew) return n;
  if (!point.tree || (point.tree->members.size() < n && point.tree->tries > kTriesAnEntry * n)) {
    if (!mirror::available(L)) return n;
    point.tree = grow_tree(L, point.entries);
  }
  const size_t alone = n - point.tree->members.size();
  point.tree->tries += alone;
  return alone;
}

// The lines that one hit reads are recorded for each member of a tree, once its code is made. The tree may be gone when
// the portal call ends.
struct NotedHit {
  std::weak_ptr<EntryTree> tree;
  size_t member = 0;
  ReadLines lines;
};
thread_local NotedHit noted_hit;

[[gnu::noinline]] void note_hit_of(const std::shared_ptr<EntryTree>& tree, size_t member) {
  noted_hit = {tree, member, {}};
  Entry& e = *tree->members[member].entry;
  noted_hit.lines.add(&e.hits, size_t(static_cast<char*>(static_cast<void*>(&e + 1)) -
                                      static_cast<char*>(static_cast<void*>(&e.hits))));
  noted_lines = &noted_hit.lines;
}

// Runs the entry's guards. Returns -1 if they hold, otherwise the same as run_guards.
int try_entry(lua_State* L, const Entry& e, const CallValues& call, GuardValues& values, Lookup& a) {
  const int base = lua_gettop(L);
  int miss = NativeGuards::kUnsure;
  if (e.native) miss = e.native->run(L, call, &values);
  if (miss == NativeGuards::kUnsure) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, e.constants);
    lua_rawgeti(L, LUA_REGISTRYINDEX, e.weak);
    values.views.clear();
    miss = run_guards(L, e.guards, call, base + 1, &values);
  }
  if (miss == -1) return miss;
  a.no_room = a.no_room || miss == kNoRoom;
  lua_settop(L, base);
  return miss;
}

bool try_member(lua_State* L, const std::shared_ptr<EntryTree>& tree, size_t i, const CallValues& call,
                GuardValues& values, Lookup& a) {
  constexpr int64_t kUntilMade = 3;
  const TreeMember& member = tree->members[i];
  const Entry& e = *member.entry;
  member.lines.ask();
  if (member.lines.count == 0 && e.hits >= kUntilMade) note_hit_of(tree, i);
  const bool holds = try_entry(L, e, call, values, a) == -1;
  if (!holds) noted_lines = nullptr;
  return holds;
}

}  // namespace

void keep_noted_hit() {
  noted_lines = nullptr;
  if (const std::shared_ptr<EntryTree> tree = noted_hit.tree.lock())
    tree->members[noted_hit.member].lines = noted_hit.lines;
  noted_hit.tree.reset();
}

Lookup find_entry(lua_State* L, ProtoPoint& point, const CallValues& call, GuardValues& values) {
  Lookup a;
  const auto hit = [&](Entry& e) {
    e.hits++;
    a.entry = &e;
  };
  auto& entries = point.entries;
  const size_t alone = without_tree(L, point);
  for (size_t i = 0; i < alone; i++) {
    Entry& e = *entries[i];
    const int miss = try_entry(L, e, call, values, a);
    if (miss == -1) {
      if (i > 0) std::rotate(entries.begin(), entries.begin() + long(i), entries.begin() + long(i) + 1);
      hit(e);
      return a;
    }
    if (i == 0) a.missed = &e, a.failed = miss;
  }
  if (alone == entries.size()) return a;
  EntryTree& tree = *point.tree;
  const int found =
      tree.tree.find(L, call, [&](int i) { return try_member(L, point.tree, size_t(i), call, values, a); });
  if (found >= 0) {
    hit(*tree.members[size_t(found)].entry);
  } else if (alone == 0) {
    a.missed = entries[0].get();
    a.failed = try_entry(L, *a.missed, call, values, a);
    if (a.failed == -1) hit(*a.missed);
  }
  return a;
}

void forget_tree(ProtoPoint& point) { point.tree.reset(); }

void forget_entry(lua_State* L, ProtoPoint& point, const Entry& entry) {
  const auto at = std::find_if(point.entries.begin(), point.entries.end(), [&](auto& e) { return e.get() == &entry; });
  if (at == point.entries.end()) return;
  forget_tree(point);
  release_entry(L, **at);
  capture_state(L).running.keep(std::move(*at));
  point.entries.erase(at);
}

void forget_entries(lua_State* L, ProtoPoint& point) {
  forget_tree(point);
  RunningCalls& running = capture_state(L).running;
  for (auto& e : point.entries) release_entry(L, *e), running.keep(std::move(e));
  point.entries.clear();
  point.compiling = 0;
}

}  // namespace lutra
