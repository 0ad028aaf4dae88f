// Prints the expressions of an env that a text uses.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/graph/text.h"

namespace lutra {

// An expression with more terms than this gets a name. So a text stays flat, and its length is linear in the size of
// what it shows.
inline constexpr int kMaxTerms = 24;

// Prints expressions. Large ones have names, $0, $1 ..., in the order of the env, so operands precede their users.
class Expressions {
 public:
  explicit Expressions(const SymEnv& env) : env_(env), used_(env.size(), false) {}

  void use(int32_t id) {
    if (id) used_[size_t(id)] = true;
  }
  // Chooses the expressions that get a name. Call it after all use().
  void name_large() {
    spread(used_);
    std::vector<int> terms(env_.size(), 1);
    for (size_t id = 1; id < env_.size(); id++) {
      const SymExpr& e = env_[int32_t(id)];
      if (!used_[id] || arity(e.op) == 0) continue;
      terms[id] = 1 + terms[size_t(e.a)] + (arity(e.op) == 2 ? terms[size_t(e.b)] : 0);
      if (terms[id] <= kMaxTerms) continue;
      terms[id] = 1;
      names_.emplace(int32_t(id), int(order_.size()));
      order_.push_back(int32_t(id));
    }
  }
  // Marks all operands of the marked expressions, recursively.
  void spread(std::vector<bool>& marked) const {
    for (size_t id = marked.size(); id-- > 1;) {
      const SymExpr& e = env_[int32_t(id)];
      if (!marked[id]) continue;
      if (arity(e.op) >= 1) marked[size_t(e.a)] = true;
      if (arity(e.op) == 2) marked[size_t(e.b)] = true;
    }
  }

  bool is_used(int32_t id) const { return used_[size_t(id)]; }
  const std::vector<int32_t>& named() const { return order_; }
  std::string text(int32_t id) const {
    Text out;
    write(out, id);
    return std::move(out.text);
  }
  std::string full(int32_t id) const {
    Text out;
    write_full(out, id);
    return std::move(out.text);
  }
  void write(Text& out, int32_t id) const {
    auto it = names_.find(id);
    it != names_.end() ? out << '$' << it->second : write_full(out, id);
  }
  Text& write_full(Text& out, int32_t id) const {
    const SymExpr& e = env_[id];
    if (arity(e.op) == 0) return write_leaf(out, e);
    out << name(e.op) << '(';
    write(out, e.a);
    if (arity(e.op) == 2) out << ", ", write(out, e.b);
    return out << ')';
  }

 private:
  const SymEnv& env_;
  std::vector<bool> used_;
  std::unordered_map<int32_t, int> names_;
  std::vector<int32_t> order_;
};

}  // namespace lutra
