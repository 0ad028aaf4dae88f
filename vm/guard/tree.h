// In: many guard programs, and the values of a call. Out: the programs that may hold for them. It is a tree over what
// the programs compare with constants (sizes of tensors, values, objects), so that a call runs only a few programs.
// Invariants:
// 1. A program that holds is always among those that are tried. The set of the others affects only the time.
// 2. It reads LuaJIT's structs, so it needs the mirror. Reads are raw, and any value may be at any place.
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

  // Calls holds(i) for members until it returns true, and returns that member's number; otherwise -1. Members that the
  // tree does not distinguish are tried in the order of their last hits.
  template <class F>
  int find(lua_State* L, const CallValues& call, const F& holds) {
    return find(root_, L, call, holds);
  }

 private:
  // A step of a path to a value. A path begins at an argument (kArg, kVararg) or the function, and follows upvalues,
  // fields and metatables.
  struct Hop {
    GuardOp load;
    uint64_t at;  // an index; for a field, its key
    auto operator<=>(const Hop&) const = default;
  };
  using Path = std::vector<Hop>;
  // The fact of the value that distinguishes programs.
  enum class Fact : uint8_t { kValue, kLength, kDType, kRank, kSize };
  struct Read {
    Path path;
    Fact fact = Fact::kValue;
    int dim = 0;
    auto operator<=>(const Read&) const = default;
  };
  // The reads that a program compares, by number, each with the expected key; sorted.
  using Wanted = std::vector<std::pair<int, uint64_t>>;
  // A node's number, ~m for the single program m, or kNothing.
  using Child = int32_t;
  static constexpr Child kNothing = INT32_MIN;
  // A slot of a hash table. A lookup reads one cache line of the table.
  struct Place {
    uint64_t key = 0;
    Child child = kNothing;
  };
  struct Node {
    const Read* read = nullptr;  // null: a leaf
    std::vector<Place> by_key;   // a power of 2 of slots, half of them free
    int shift = 0;
    Child rest = kNothing;     // programs that do not compare this read
    std::vector<int> members;  // for a leaf: its programs, more than one
  };

  int number_of(const Read& read);
  Wanted wanted_of(const Member& member);
  static bool key_of(const Read& read, lua_State* L, const CallValues& call, uint64_t* key);
  static int best_read(const std::vector<int>& members, const std::vector<Wanted>& wanted);
  Child grow(std::vector<int> members, const std::vector<Wanted>& wanted);

  // Returns the slot where the key is or would be.
  static size_t place_of(const Node& node, uint64_t key) {
    constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;
    size_t at = size_t((key * kGoldenRatio) >> node.shift);
    while (node.by_key[at].child != kNothing && node.by_key[at].key != key) at = (at + 1) & (node.by_key.size() - 1);
    return at;
  }

  template <class F>
  int find(Child at, lua_State* L, const CallValues& call, const F& holds) {
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
    if (key_of(*node.read, L, call, &key)) {
      const int found = find(node.by_key[place_of(node, key)].child, L, call, holds);
      if (found >= 0) return found;
    }
    return find(node.rest, L, call, holds);
  }

  std::map<Read, int> numbers_;
  std::vector<const Read*> reads_;  // by number
  std::vector<Node> nodes_;
  Child root_ = kNothing;
};

}  // namespace lutra
