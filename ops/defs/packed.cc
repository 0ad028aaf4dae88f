// Runs calls with int4 tensors, or calls that ask for int4, as the same op on bytes or as shifts of bytes.
#include "ops/defs/packed.h"

#include "ops/defs/call.h"
#include "ops/defs/each_tensor.h"
#include "ops/defs/on_parts.h"

namespace lutra {
namespace {

constexpr DType kByte = DType::kUInt8, kSmall = DType::kInt8;

Tensor as(const Tensor& t, DType dtype) { return t->dtype == dtype ? t : op1(OpId::to_dtype, {t, dtype}); }
Tensor shifted(OpId op, const Tensor& t) { return op1(op, {t, Scalar::of_int(4)}); }

Tensor unpack(const Tensor& t) {
  const Tensor high = as(as_cells(t), kSmall), low = shifted(OpId::bitwise_left_shift, high);
  const std::vector<Tensor> both = {shifted(OpId::bitwise_right_shift, low), shifted(OpId::bitwise_right_shift, high)};
  return op1(OpId::reshape, {op1(OpId::stack, {both, Scalar::of_int(-1)}), t->sizes});
}

Tensor pack(const Tensor& t, DType dtype) {
  if (t->sizes.empty() || floor_div(t->sizes.back(), 2) * 2 != t->sizes.back()) fail_packed("to", dtype, t->sizes);
  Sizes pairs = t->sizes;
  pairs.back() = floor_div(t->sizes.back(), 2);
  pairs.push_back(2);
  const Tensor halves = op1(OpId::reshape, {as(t, kSmall), pairs});
  const auto half = [&](int64_t k) { return op1(OpId::select, {halves, Scalar::of_int(-1), Scalar::of_int(k)}); };
  const Tensor low = op1(OpId::bitwise_and, {half(0), Scalar::of_int(15)});
  return of_cells(as(op1(OpId::bitwise_or, {low, shifted(OpId::bitwise_left_shift, half(1))}), kByte), dtype);
}

Tensor filled(const Args& args) {
  Sizes sizes = args[0].as<Sizes>();
  if (sizes.empty() || floor_div(sizes.back(), 2) * 2 != sizes.back()) fail_packed("full", args[2].as<DType>(), sizes);
  return pack(op1(OpId::full, {args[0], args[1], kSmall, args[3]}), args[2].as<DType>());
}

DType dtype_of(const Args& args) {
  DType found = DType::kNone;
  each_argument_tensor(args, [&](size_t, const Tensor& t) {
    if (is_packed(t->dtype)) found = t->dtype;
  });
  return found;
}

[[noreturn]] void refuse(const OpInfo& op, DType dtype) {
  fail(op.name, ": not defined for ", name(dtype), ", which lies two elements a byte; convert by x:to('int8')");
}

// Refuses the last dim among the op's dims (argument `at`).
void check_dims(const OpInfo& op, const Args& args, size_t at) {
  const int64_t last = args[0].as<Tensor>()->dim() - 1;
  const auto check = [&](SymInt d) {
    if (d == -1 || d == last) refuse(op, args[0].as<Tensor>()->dtype);
  };
  if (!args[at].is<Sizes>()) return check(args[at].sym_int());
  for (SymInt d : args[at].as<Sizes>()) check(d);
}

Tensor on_bytes(const OpInfo& op, const Args& args, DType dtype) {
  Args own = args;
  own[0] = as_cells(args[0].as<Tensor>());
  return of_cells(op1(op.id, own), dtype);
}

Tensor joined(const OpInfo& op, const Args& args, DType dtype) {
  std::vector<Tensor> parts;
  for (const Tensor& t : args[0].as<std::vector<Tensor>>()) {
    if (t->dtype != dtype) fail(op.name, ": ", name(dtype), " and ", name(t->dtype), " have no common dtype");
    parts.push_back(as_cells(t));
  }
  return of_cells(op1(op.id, {parts, args[1]}), dtype);
}

}  // namespace

bool has_packed(const OpInfo& op, const Args& args) {
  if (op.takes_as_parts() || op.has(kView)) return false;
  for (const Value& v : args) {
    if (v.is<DType>() && is_packed(v.as<DType>())) return true;
  }
  return is_packed(dtype_of(args));
}

Tensor call_packed(const OpInfo& op, const Args& args) {
  const DType dtype = dtype_of(args);
  switch (op.id) {
    case OpId::to_dtype: {
      const Tensor& t = args[0].as<Tensor>();
      const DType to = args[1].as<DType>();
      if (to == t->dtype) return t;
      return is_packed(to) ? pack(is_packed(t->dtype) ? unpack(t) : t, to) : as(unpack(t), to);
    }
    case OpId::full: return filled(args);
    case OpId::empty: return filled({args[0], Scalar(0.0), args[1], args[2]});
    case OpId::cat: return joined(op, args, dtype);
    case OpId::eq:
    case OpId::ne: {
      const auto operand = [&](size_t k) -> Value {
        const bool whole = args[k].is<Tensor>() && args[k].as<Tensor>()->dtype == dtype;
        return whole ? Value(unpack(args[k].as<Tensor>())) : args[k];
      };
      return op1(op.id, {operand(0), operand(1)});
    }
    case OpId::clone:
    case OpId::to_device: return on_bytes(op, args, dtype);
    case OpId::weight_int4pack_mm: return op1(op.id, {args[0], as_cells(args[1].as<Tensor>()), args[2], args[3]});
    case OpId::index_select:
    case OpId::flip: check_dims(op, args, 1); return on_bytes(op, args, dtype);
    case OpId::index: check_dims(op, args, 2); return on_bytes(op, args, dtype);
    default: refuse(op, is_packed(dtype) ? dtype : DType::kInt4);
  }
}

Tensor copy_packed(const OpInfo& op, const Args& args) {
  const Tensor &self = args[0].as<Tensor>(), &src = args[1].as<Tensor>();
  if (op.id != OpId::copy_) refuse(op, dtype_of(args));
  if (!is_packed(self->dtype)) return call_inplace(OpId::copy_, {self, unpack(src)});
  const Tensor whole = as(op1(OpId::expand, {as(src, kSmall), self->sizes}), self->dtype);
  call_inplace(OpId::copy_, {as_cells(self), as_cells(whole)});
  return self;
}

}  // namespace lutra
