// Many guard programs in, those that may hold on the values of a call out: a tree over what the programs compare with
// constants (sizes of tensors, values, objects), so that a call runs a few of them.
// Invariants:
// 1. A program that holds is always among those that are tried. Which others are depends on nothing but time.
// 2. It reads LuaJIT's structs: only where the mirror is available. Reads are raw, and any value may stand anywhere.
#pragma once
#include <cstdint>
#include <map>
#include <unordered_map>
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
    return find(0, call, holds);
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
  struct Node {
    const Read* read = nullptr;  // null: a leaf
    std::unordered_map<uint64_t, int> by_key;
    int rest = -1;             // programs that ask for no value there
    std::vector<int> members;  // of a leaf
  };

  int number_of(const Read& read);
  Wanted wanted_of(const Member& member);
  static bool key_of(const Read& read, const Call& call, uint64_t* key);
  static int best_read(const std::vector<int>& members, const std::vector<Wanted>& wanted);
  int grow(std::vector<int> members, const std::vector<Wanted>& wanted);

  template <class F>
  int find(int at, const Call& call, const F& holds) {
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
      const auto child = node.by_key.find(key);
      const int found = child == node.by_key.end() ? -1 : find(child->second, call, holds);
      if (found >= 0) return found;
    }
    return node.rest < 0 ? -1 : find(node.rest, call, holds);
  }

  std::map<Read, int> numbers_;
  std::vector<const Read*> reads_;  // by number
  std::vector<Node> nodes_;
};

}  // namespace lutra
