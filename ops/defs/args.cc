// Completes an op's arguments to the kinds of its row, or raises an error that names op and argument.
#include <array>

#include "ops/defs/call.h"

namespace lutra {
namespace {

const char* expected(ArgType type) {
  switch (type) {
    case ArgType::kTensor: return "a tensor";
    case ArgType::kTensorList: return "a list of tensors";
    case ArgType::kOperand: return "a tensor or a number";
    case ArgType::kScalar:
    case ArgType::kFloat: return "a number";
    case ArgType::kFloatList: return "a list of numbers";
    case ArgType::kInt: return "a whole number";
    case ArgType::kIntList: return "a list of whole numbers";
    case ArgType::kBool: return "a boolean";
    case ArgType::kDType: return "a dtype";
    case ArgType::kDevice: return "a device";
    case ArgType::kStr: return "a string";
    case ArgType::kFunction: return "a function";
  }
  return "?";
}

// Converts v to the form of the type. Returns false if it has none.
bool accept(ArgType type, Value& v) {
  switch (type) {
    case ArgType::kTensor: return v.is<Tensor>();
    case ArgType::kTensorList: return v.is<std::vector<Tensor>>();
    case ArgType::kOperand:
      if (v.is<Tensor>()) return true;
      [[fallthrough]];
    case ArgType::kScalar:
      if (v.is<bool>()) v = Scalar::of_bool(v.as<bool>());
      return v.is<Scalar>();
    case ArgType::kFloat: return v.is<Scalar>() && v.as<Scalar>().kind != Scalar::kBool;
    case ArgType::kFloatList: return v.is<std::vector<double>>();
    case ArgType::kInt: return v.is<Scalar>() && to_integer(v.as<Scalar>());
    case ArgType::kIntList:
      if (v.is<Scalar>() && to_integer(v.as<Scalar>())) v = Sizes{v.sym_int()};
      return v.is<Sizes>();
    case ArgType::kBool: return v.is<bool>();
    case ArgType::kDType: return v.is<DType>() && v.as<DType>() != DType::kNone;
    case ArgType::kDevice: return v.is<Device>();
    case ArgType::kStr: return v.is<std::string>();
    case ArgType::kFunction: return v.is<FunctionRef>();
  }
  return false;
}

// -- dtypes for which PyTorch has no kernel

constexpr uint8_t kBools = 1, kBytes = 2, kIntegers = 4;
struct Refused {
  OpId op;
  size_t argument;
  uint8_t kinds;
};
constexpr Refused kRefused[] = {
#define REFUSED(op, argument, kinds) {OpId::op, argument, kinds},
#include "ops/defs/refused.def"
#undef REFUSED
};

constexpr auto kHasRefused = [] {
  std::array<bool, size_t(OpId::kCount) + 1> has{};
  for (const Refused& r : kRefused) has[size_t(r.op)] = true;
  return has;
}();

bool is_refused(DType dtype, uint8_t kinds) {
  if (is_bool(dtype)) return kinds & kBools;
  if (!is_int(dtype)) return false;
  return kinds & kIntegers || (kinds & kBytes && size_of(dtype) == 1 && least_integer(dtype) == 0);
}

void check_refused(const OpInfo& op, const Args& args) {
  if (!kHasRefused[size_t(op.id)]) return;
  for (const Refused& r : kRefused) {
    if (r.op != op.id) continue;
    const Value& v = args[r.argument];
    if (v.is<Scalar>() && v.as<Scalar>().kind == Scalar::kBool) fail(op.name, ": not defined for booleans");
    if (!v.is<Tensor>() && !v.is<DType>()) continue;
    const DType dtype = v.is<Tensor>() ? v.as<Tensor>()->dtype : v.as<DType>();
    if (is_refused(dtype, r.kinds)) fail(op.name, ": not defined for ", name(dtype), " tensors");
  }
}

bool is_null_tensor(const Value& v) { return v.is<Tensor>() && !v.as<Tensor>(); }

}  // namespace

void complete_args(const OpInfo& op, Args& args) {
  if (args.size() > op.args.size()) {
    fail(op.name, ": expected at most ", op.args.size(), " arguments, got ", args.size());
  }
  size_t given = args.size();
  args.resize(op.args.size());
  for (size_t i = 0; i < args.size(); i++) {
    const ArgInfo& arg = op.args[i];
    Value& v = args[i];
    if (is_null_tensor(v)) v = Value();
    if (v.is_none()) {
      if (i >= given || !arg.optional) {
        if (!arg.has_default && i >= given) fail(op.name, ": missing argument '", arg.name, "'");
        if (arg.has_default) v = arg.def;
      }
      if (v.is_none() && arg.optional) continue;
    }
    if (!accept(arg.type, v)) {
      fail(op.name, ": argument '", arg.name, "' must be ", expected(arg.type), ", got ", describe(v));
    }
    if (arg.specialises && v.is<Scalar>()) v = pin(v.as<Scalar>());
  }
  check_refused(op, args);
}

}  // namespace lutra
