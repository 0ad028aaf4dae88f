// Grows the tree: picks the read that leaves the fewest programs to try, then does the same for each group of programs
// that it distinguishes.
#include "vm/guard/tree.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_map>

#include "vm/bind/tensor_userdata.h"

namespace lutra {

using mirror::Tab;
using mirror::TValue;

namespace {

// Returns keys that are equal if the guard's comparison holds: numbers are compared by the bits of their double,
// whatever their representation.
uint64_t key_of_value(TValue v) { return mirror::is_number(v) ? mirror::make_number(mirror::number(v)).u64 : v.u64; }

TValue item(const Tab* t, int index) { return mirror::raw_get(t, mirror::make_number(index)); }

bool step_into(TValue& v, GuardOp load, uint64_t at) {
  switch (load) {
    case GuardOp::kUpvalueLoad: {
      if (mirror::tag(v) != mirror::kFunc) return false;
      const auto* f = static_cast<const mirror::Func*>(mirror::gc_pointer(v));
      if (!f->is_lua() || at >= f->nupvalues) return false;
      v = *f->upvalues[at]->v;
      return true;
    }
    case GuardOp::kFieldLoad:
      if (mirror::tag(v) != mirror::kTab) return false;
      v = mirror::raw_get(static_cast<const Tab*>(mirror::gc_pointer(v)), TValue{at});
      return true;
    default: {  // kMetatableLoad
      const Tab* meta = nullptr;
      if (mirror::tag(v) == mirror::kTab) {
        meta = static_cast<const Tab*>(mirror::gc_pointer(v))->metatable;
      } else if (mirror::tag(v) == mirror::kUdata) {
        meta = static_cast<const mirror::Udata*>(mirror::gc_pointer(v))->metatable;
      } else {
        return false;
      }
      v = meta ? mirror::make_gc(mirror::kTab, meta) : TValue{mirror::kNilValue};
      return true;
    }
  }
}

const Tensor* tensor_of(TValue v) {
  if (mirror::tag(v) != mirror::kUdata) return nullptr;
  const auto* u = static_cast<const mirror::Udata*>(mirror::gc_pointer(v));
  return tensor_in_userdata(u->payload(), u->len);
}

}  // namespace

int GuardTree::number_of(const Read& read) {
  const auto [at, fresh] = numbers_.emplace(read, int(reads_.size()));
  if (fresh) reads_.push_back(&at->first);
  return at->second;
}

GuardTree::Wanted GuardTree::wanted_of(const Member& member) {
  const GuardProgram& p = *member.program;
  Wanted wanted;
  std::vector<Path> paths;  // by register; empty: not followed
  const auto want = [&](const GuardStep& s, Fact fact, uint64_t key, int dim = 0) {
    if (s.a < 0 || paths[size_t(s.a)].empty()) return;
    wanted.push_back({number_of({paths[size_t(s.a)], fact, dim}), key});
  };
  for (const GuardStep& s : p.steps) {
    if (is_load(s.op) && s.op != GuardOp::kGradLoad) {
      Path path;
      if (s.op == GuardOp::kArgLoad || s.op == GuardOp::kVarargLoad || s.op == GuardOp::kSelfLoad) {
        path = {{s.op, uint64_t(s.index)}};
      } else if (s.op == GuardOp::kUpvalueLoad || s.op == GuardOp::kFieldLoad || s.op == GuardOp::kMetatableLoad) {
        path = paths[size_t(s.a)];
        const bool field = s.op == GuardOp::kFieldLoad;
        if (!path.empty()) path.push_back({s.op, field ? item(member.constants, s.index).u64 : uint64_t(s.index)});
      }
      paths.push_back(std::move(path));
      continue;
    }
    switch (s.op) {
      case GuardOp::kNilCheck: want(s, Fact::kValue, mirror::kNilValue); break;
      case GuardOp::kValueCheck:
      case GuardOp::kFieldCheck:
      case GuardOp::kGlobalCheck:
      case GuardOp::kUpvalueCheck: want(s, Fact::kValue, key_of_value(item(member.constants, s.index))); break;
      case GuardOp::kIdentityCheck: want(s, Fact::kValue, item(member.weak, s.index).u64); break;
      case GuardOp::kLengthCheck: want(s, Fact::kLength, uint64_t(s.index)); break;
      case GuardOp::kTensorCheck: {
        const TensorSpec& spec = p.tensors[size_t(s.index)];
        want(s, Fact::kDType, uint64_t(spec.dtype));
        want(s, Fact::kRank, spec.sizes.size());
        for (size_t d = 0; d < spec.sizes.size(); d++) {
          if (spec.sizes[d] >= 0) want(s, Fact::kSize, uint64_t(spec.sizes[d]), int(d));
        }
        break;
      }
      default: break;
    }
  }
  std::stable_sort(wanted.begin(), wanted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  wanted.erase(std::unique(wanted.begin(), wanted.end(), same), wanted.end());
  return wanted;
}

bool GuardTree::key_of(const Read& read, lua_State* L, const CallValues& call, uint64_t* key) {
  const Hop& root = read.path[0];
  TValue v{mirror::kNilValue};
  if (root.load == GuardOp::kSelfLoad) {
    v = mirror::base(L)[call.self - 1];
  } else {
    const int i = int(root.at) + (root.load == GuardOp::kVarargLoad ? call.nslots : 0);
    if (i < call.nargs) v = mirror::base(L)[i];
  }
  for (size_t i = 1; i < read.path.size(); i++) {
    if (!step_into(v, read.path[i].load, read.path[i].at)) return false;
  }
  if (read.fact == Fact::kValue) return *key = key_of_value(v), true;
  if (read.fact == Fact::kLength) {
    if (mirror::tag(v) != mirror::kTab) return false;
    return *key = uint64_t(mirror::length(static_cast<const Tab*>(mirror::gc_pointer(v)))), true;
  }
  const Tensor* t = tensor_of(v);
  if (!t || !*t) return false;
  if (read.fact == Fact::kDType) return *key = uint64_t((*t)->dtype), true;
  const auto& sizes = (*t)->sizes;
  if (read.fact == Fact::kRank) return *key = sizes.size(), true;
  if (size_t(read.dim) >= sizes.size()) return false;
  return *key = uint64_t(sizes[size_t(read.dim)].hint), true;
}

GuardTree::GuardTree(const std::vector<Member>& members) {
  std::vector<Wanted> wanted;
  for (const Member& m : members) wanted.push_back(wanted_of(m));
  std::vector<int> all(members.size());
  std::iota(all.begin(), all.end(), 0);
  root_ = grow(std::move(all), wanted);
}

// Returns the read after which a call tries the fewest members, if calls are spread as the members are; -1 if no read
// saves a quarter.
int GuardTree::best_read(const std::vector<int>& members, const std::vector<Wanted>& wanted) {
  std::map<int, std::unordered_map<uint64_t, double>> counts;
  for (int m : members) {
    for (const auto& [read, key] : wanted[size_t(m)]) counts[read][key]++;
  }
  double least = double(members.size()) * 0.75;
  int best = -1;
  for (const auto& [read, keys] : counts) {
    double asking = 0, squares = 0;
    for (const auto& [key, n] : keys) asking += n, squares += n * n;
    const double tried = double(members.size()) - asking + squares / asking;
    if (keys.size() > 1 && tried < least) least = tried, best = read;
  }
  return best;
}

GuardTree::Child GuardTree::grow(std::vector<int> members, const std::vector<Wanted>& wanted) {
  constexpr size_t kFew = 3;
  if (members.size() == 1) return ~members[0];
  const auto at = Child(nodes_.size());
  nodes_.emplace_back();
  const int read = members.size() > kFew ? best_read(members, wanted) : -1;
  if (read < 0) {
    nodes_[size_t(at)].members = std::move(members);
    return at;
  }
  std::unordered_map<uint64_t, std::vector<int>> parts;
  std::vector<int> rest;
  for (int m : members) {
    const Wanted& list = wanted[size_t(m)];
    const auto asks = std::lower_bound(list.begin(), list.end(), std::pair<int, uint64_t>(read, 0));
    (asks != list.end() && asks->first == read ? parts[asks->second] : rest).push_back(m);
  }
  Node node;
  node.read = reads_[size_t(read)];
  node.by_key.resize(std::bit_ceil(2 * parts.size()));
  node.shift = 64 - std::countr_zero(node.by_key.size());
  for (auto& [key, part] : parts) {
    const Child child = grow(std::move(part), wanted);
    node.by_key[place_of(node, key)] = {key, child};
  }
  if (!rest.empty()) node.rest = grow(std::move(rest), wanted);
  nodes_[size_t(at)] = std::move(node);
  return at;
}

}  // namespace lutra
