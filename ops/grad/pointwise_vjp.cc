// The vjp rule of a pointwise op as one op. The eager executor compiles an op's decomposition into one kernel, and this
// op's decomposition runs the rule.
#include <algorithm>
#include <bit>

#include "ops/decompose/emit.h"
#include "ops/grad/saves.h"
#include "ops/grad/vjp.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

constexpr size_t kNumbers = 3, kMaxArguments = 8;

// The argument `rule` of the op. Bit n of a mask stands for args[n] of the pointwise op; the others are None.
struct Rule {
  OpId op;
  size_t argument;  // whose gradient
  bool in_place;
  uint32_t tensors = 0, numbers = 0;  // masks

  Value pack() const {
    return Scalar(int64_t(op) | int64_t(argument) << 16 | int64_t(in_place) << 24 | int64_t(tensors) << 32 |
                  int64_t(numbers) << 40);
  }
  static Rule unpack(const Value& v) {
    const auto bits = uint64_t(v.as<Scalar>().to_int());
    return {OpId(bits & 0xffff), size_t(bits >> 16 & 0xff), bool(bits >> 24 & 1), uint32_t(bits >> 32 & 0xff),
            uint32_t(bits >> 40 & 0xff)};
  }
};

// Returns whether the rule is one op anyway, although it reads values.
bool is_one_op(OpId op) {
  return op == OpId::mul || op == OpId::exp || op == OpId::log || op == OpId::gelu || op == OpId::silu;
}

bool same_layout(const Tensor& a, const Tensor& b) {
  for (size_t d = 0; d < a->strides.size(); d++) {
    if (a->sizes[d].hint > 1 && a->strides[d].hint != b->strides[d].hint) return false;
  }
  return true;
}

bool same_elements(const Tensor& a, const Tensor& b) { return a->dtype == b->dtype && same_sizes(a->sizes, b->sizes); }

// Collects what one call for the argument k passes. Returns false if it may not be one op.
bool read(const VjpContext& ctx, size_t k, Args& call) {
  const OpInfo& op = info(ctx.op);
  const Tensor& grad = ctx.grads[0];
  const SaveMasks read = saved_by(ctx.op, 1u << k, ctx.in_place);
  Rule rule{ctx.op, k, ctx.in_place};
  std::vector<Tensor> values;
  std::vector<Value> numbers;
  const auto take = [&](const Tensor& t, bool reads) {
    if (!same_elements(t, grad)) return false;
    if (!reads) return true;
    values.push_back(t);
    return same_layout(t, grad) && t->device() == grad->device();
  };
  for (size_t i = 0; i < ctx.args.size(); i++) {
    const Value& v = ctx.args[i];
    if (v.is<Tensor>()) {
      rule.tensors |= 1u << i;
      if (!take(v.as<Tensor>(), read.args >> i & 1)) return false;
    } else if (v.is<Scalar>() && op.args[i].type != ArgType::kInt && numbers.size() < kNumbers) {
      rule.numbers |= 1u << i;
      numbers.push_back(v);
    } else if (!v.is_none()) {
      return false;
    }
  }
  if (!take(ctx.results[0], read.results & 1)) return false;
  if (values.empty()) return false;  // the rule passes the gradient on, perhaps itself
  numbers.resize(kNumbers);
  call = {grad, std::move(values), numbers[0], numbers[1], numbers[2], rule.pack()};
  return true;
}

// Returns whether the op takes arguments of these kinds. A graph's text may be wrong.
bool fits(const Rule& rule, const Args& args) {
  if (rule.op >= OpId::input || rule.argument >= kMaxArguments || rule.tensors & rule.numbers) return false;
  if (!(rule.tensors >> rule.argument & 1)) return false;
  const OpInfo& op = info(rule.op);
  if (!op.has(kPointwise) || !op.vjp || op.args.size() > kMaxArguments || op.results != 1) return false;
  size_t numbers = 2;
  for (size_t i = 0; i < kMaxArguments; i++) {
    const bool tensor = rule.tensors >> i & 1, number = rule.numbers >> i & 1;
    if (i >= op.args.size()) {
      if (tensor || number) return false;
      continue;
    }
    const ArgType type = op.args[i].type;
    const bool operand = type == ArgType::kOperand;
    if (tensor && !operand && type != ArgType::kTensor) return false;
    if (number && !operand && type != ArgType::kScalar && type != ArgType::kFloat) return false;
    if (!tensor && !number && !op.args[i].optional) return false;
    if (number && (numbers == 2 + kNumbers || args[numbers++].is_none())) return false;
  }
  const SaveMasks read = saved_by(rule.op, 1u << rule.argument, rule.in_place);
  const auto& values = args[1].as<std::vector<Tensor>>();
  const Tensor grad = args[0].tensor();
  const auto fitting = [&](const Tensor& t) { return same_elements(t, grad); };
  return values.size() == size_t(std::popcount(read.args & rule.tensors) + std::popcount(read.results)) &&
         !values.empty() && is_float(grad->dtype) && std::all_of(values.begin(), values.end(), fitting);
}

}  // namespace

bool run_as_one_op(VjpContext& ctx) {
  const OpInfo& op = info(ctx.op);
  if (current_mode() || !op.has(kPointwise) || is_one_op(ctx.op)) return false;
  if (ctx.args.size() > kMaxArguments || ctx.results.size() != 1) return false;
  const Tensor& grad = ctx.grads[0];
  if (!grad || grad->is_fake() || !is_float(grad->dtype)) return false;
  std::vector<Args> calls(ctx.args.size());
  for (size_t k = 0; k < ctx.args.size(); k++) {
    if (ctx.needs(k) && !read(ctx, k, calls[k])) return false;
  }
  for (size_t k = 0; k < calls.size(); k++) {
    if (!calls[k].empty()) ctx.out[k] = op1(OpId::pointwise_vjp, std::move(calls[k]));
  }
  return true;
}

std::string name_of_call(OpId op, const Args& args) {
  return op == OpId::pointwise_vjp ? str(name(Rule::unpack(args.back()).op), "_backward") : name(op);
}

ResultSpecs meta_pointwise_vjp(OpId op, const Args& args) {
  check_internal(op, fits(Rule::unpack(args[5]), args), "these are no arguments of the rule");
  const Tensor& value = args[1].as<std::vector<Tensor>>()[0];
  return {like_spec(value, value->dtype)};
}

// A tensor that the rule does not read is replaced by the gradient, which has its sizes and dtype.
Results decompose_pointwise_vjp(const Args& args) {
  const Rule rule = Rule::unpack(args[5]);
  const OpInfo& op = info(rule.op);
  const SaveMasks read = saved_by(rule.op, 1u << rule.argument, rule.in_place);
  const Tensor grad = args[0].tensor();
  const auto& values = args[1].as<std::vector<Tensor>>();
  size_t value = 0, number = 2;
  const auto tensor = [&](bool is_read) { return is_read ? values[value++] : grad; };
  Args call(op.args.size());
  SmallVec<bool, 8> wanted;
  for (size_t i = 0; i < call.size(); i++) {
    if (rule.tensors >> i & 1) {
      call[i] = tensor(read.args >> i & 1);
      wanted.push_back(i == rule.argument);
    } else if (rule.numbers >> i & 1) {
      call[i] = args[number++];
    }
  }
  const Results results = {tensor(read.results & 1)}, grads = {grad};
  VjpContext ctx{rule.op, call, results, grads, wanted, std::vector<Tensor>(call.size())};
  ctx.in_place = rule.in_place;
  op.vjp(ctx);
  return {ctx.out[rule.argument]};
}

}  // namespace lutra
