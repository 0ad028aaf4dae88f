// Computes result types of ops whose shapes depend on elements.
#include "jit/graph/unbacked.h"

#include <algorithm>

#include "ops/defs/to_device.h"
#include "ops/meta/unbacked.h"

namespace lutra {
namespace {

thread_local UnbackedSizes* current = nullptr;

}  // namespace

UnbackedSizes::UnbackedSizes() : outer_(lutra::current) { lutra::current = this; }
UnbackedSizes::~UnbackedSizes() { lutra::current = outer_; }
UnbackedSizes* UnbackedSizes::current() { return lutra::current; }

ResultSpecs unbacked_specs(OpId op, const Args& args) {
  if (!current || !current->takes()) fail_dynamic(op);
  if (tells_number(op)) return specs_of_size(op, args, SymInt());
  const SymInt most = most_elements(op, args);
  const SymInt n = most.hint < 0 ? SymInt() : current->size(op, most);
  if (n.is_constant()) fail_dynamic(op);
  return specs_of_size(op, args, n);
}

int32_t unbacked_expr(const Node& node) {
  return tells_number(node.op) ? node.args.back().as<Scalar>().expr : node.results[0]->sizes[0].expr;
}

double determined_value(OpId op, const Tensor& result) {
  return tells_number(op) ? *on_host(result)->data_as<double>() : double(result->sizes[0].hint);
}

int32_t unbacked_number(std::span<const SymExpr> exprs, int32_t expr) {
  const SymExpr& e = exprs[size_t(expr)];
  if (e.op == SymOp::kScalarInput) return e.a;
  LUTRA_CHECK(e.op == SymOp::kToInt && exprs[size_t(e.a)].op == SymOp::kScalarInput, "a size that is not unbacked");
  return exprs[size_t(e.a)].a;
}

std::vector<int32_t> unbacked_numbers(const Graph& graph) {
  std::vector<int32_t> numbers;
  for (const auto& n : graph.nodes) {
    if (!info(n->op).dynamic) continue;
    numbers.push_back(unbacked_number(graph.env->exprs(), unbacked_expr(*n)));
  }
  return numbers;
}

std::vector<int32_t> unbacked_levels(std::span<const SymExpr> exprs, std::span<const int32_t> numbers) {
  std::vector<int32_t> levels(exprs.size(), 0);
  for (size_t i = 1; i < exprs.size() && !numbers.empty(); i++) {
    const SymExpr& e = exprs[i];
    if (e.op == SymOp::kScalarInput) {
      const auto at = std::find(numbers.begin(), numbers.end(), e.a);
      if (at != numbers.end()) levels[i] = int32_t(at - numbers.begin()) + 1;
    }
    if (arity(e.op) >= 1) levels[i] = levels[size_t(e.a)];
    if (arity(e.op) == 2) levels[i] = std::max(levels[i], levels[size_t(e.b)]);
  }
  return levels;
}

}  // namespace lutra
