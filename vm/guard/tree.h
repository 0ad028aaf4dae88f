// Many guard programs in, those that may hold on the values of a call out: a tree over what the programs compare with
// constants (sizes of tensors, values, objects), so that a call runs a few of them.
// Invariants:
// 1. A program that holds is always among those that are tried. Which others are depends on nothing but time.
// 2. It reads LuaJIT's structs: only where the mirror is available. Reads are raw, and any value may stand anywhere.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "vm/guard/program.h"
#include "vm/mirror/mirror.h"

namespace lutra {

class GuardTree {
 public:
  struct Member {
    const GuardProgram* program = nullptr;
    const mirror::Tab *constants = nullptr, *weak = nullptr;  // the entry's tables
  };
  explicit GuardTree(const std::vector<Member>& members);
  GuardTree(const GuardTree&) = delete;

  // The values of a portal call, as run_guards has them.
  struct Call {
    lua_State* L = nullptr;
    int nslots = 0, nargs = 0, self = 0;
  };
  // Calls holds(i) with members, until it is true of one, whose number is returned; else -1. Members that are not told
  // apart are tried in the order in which they were met last.
  template <class F>
  int find(const Call& call, const F& holds) {
    return find(root_, call, holds);
  }

 private:
  // Where a value is read: from an argument (kArg, kVararg) or the function, by upvalues, fields, metatables.
  struct Hop {
    GuardOp load;
    uint64_t at;  // an index; of a field, its key
    auto operator<=>(const Hop&) const = default;
  };
  using Path = std::vector<Hop>;
  // What of the value tells programs apart.
  enum class Fact : uint8_t { kValue, kLength, kDType, kRank, kSize };
  struct Read {
    Path path;
    Fact fact = Fact::kValue;
    int dim = 0;
    auto operator<=>(const Read&) const = default;
  };
  // What a program compares with which key, by the number of the read; sorted.
  using Wanted = std::vector<std::pair<int, uint64_t>>;
  // A node by its number, one program m as ~m, or nothing.
  using Child = int32_t;
  static constexpr Child kNothing = INT32_MIN;
  // A place of a hash table, of which a call reads one cache line.
  struct Place {
    uint64_t key = 0;
    Child child = kNothing;
  };
  struct Node {
    const Read* read = nullptr;  // null: a leaf
    std::vector<Place> by_key;   // as many places as a power of 2, half of them free
    int shift = 0;
    Child rest = kNothing;     // programs that ask for no value there
    std::vector<int> members;  // of a leaf, more than one
  };

  int number_of(const Read& read);
  Wanted wanted_of(const Member& member);
  static bool key_of(const Read& read, const Call& call, uint64_t* key);
  static int best_read(const std::vector<int>& members, const std::vector<Wanted>& wanted);
  Child grow(std::vector<int> members, const std::vector<Wanted>& wanted);

  // Where the key is, or would be.
  static size_t place_of(const Node& node, uint64_t key) {
    constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;
    size_t at = size_t((key * kGoldenRatio) >> node.shift);
    while (node.by_key[at].child != kNothing && node.by_key[at].key != key) at = (at + 1) & (node.by_key.size() - 1);
    return at;
  }

  template <class F>
  int find(Child at, const Call& call, const F& holds) {
    if (at < 0) return at != kNothing && holds(~at) ? ~at : -1;
    Node& node = nodes_[size_t(at)];
    if (!node.read) {
      for (size_t i = 0; i < node.members.size(); i++) {
        const int member = node.members[i];
        if (!holds(member)) continue;
        node.members.erase(node.members.begin() + long(i));
        node.members.insert(node.members.begin(), member);
        return member;
      }
      return -1;
    }
    uint64_t key;
    if (key_of(*node.read, call, &key)) {
      const int found = find(node.by_key[place_of(node, key)].child, call, holds);
      if (found >= 0) return found;
    }
    return find(node.rest, call, holds);
  }

  std::map<Read, int> numbers_;
  std::vector<const Read*> reads_;  // by number
  std::vector<Node> nodes_;
  Child root_ = kNothing;
};

}  // namespace lutra
