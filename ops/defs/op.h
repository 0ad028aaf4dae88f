// Ops as data: the rows of ops.def with their schemas parsed.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/value.h"

namespace lutra {

enum class OpId : uint16_t {
#define OP(name, ...) name,
#include "ops/defs/ops.def"
#undef OP
  // Only in graphs: a value that comes from outside.
  input,
  kCount
};

enum OpFlags : uint32_t {
  kPointwise = 1,
  kView = 2,
  kRandom = 4,
  kInplace = 8,
  kCreation = 16,
  kMutates = 32,
  kInternal = 64,
  kAtCall = 128,
  kIdentity = 256,
  kOpmath = 512,
  kFails = 1024,
  kFailsOnIntegers = 2048,
  kMethodOnly = 4096,
  kFunctionOnly = 8192,
  kTakesGenerator = 16384,
  kTakesRequiresGrad = 32768,
  kList = 65536,
  kNoOut = 131072,
  kHeavy = 262144,
  kMoves = 524288,
  kByParts = 1048576,
  kContraction = 2097152,
  kSpatial = 4194304,
  kScatters = 8388608,
  kControl = 16777216,
};

// How autocast treats an op's arguments. See ops.def.
enum class AutocastPolicy : uint8_t {
  kNone,
  kLower,
  kFloat32,
  kResult,
  kPromote,
  kPad,
  kResample,
  kNumerator,
  kApart,
  kBanned
};

enum class ArgType : uint8_t {
  kTensor,
  kTensorList,
  kOperand,
  kScalar,
  kInt,
  kIntList,
  kFloat,
  kFloatList,
  kBool,
  kDType,
  kDevice,
  kStr,
  kFunction
};

struct ArgInfo {
  std::string name;
  ArgType type;
  bool optional = false;  // None allowed
  bool keyword_only = false;
  bool has_default = false;
  bool specialises = false;  // marked '!'
  bool converts = false;     // marked '~'
  Value def;
};

// The sizes, dtype and layout of one result, as meta rules return them.
struct ResultSpec {
  Sizes sizes;
  Sizes strides;
  DType dtype = DType::kFloat32;
  bool view = false;  // aliases the first tensor argument at offset
  SymInt offset;
  bool parts = false;  // the decomposition aliases an argument, writes or draws, so that no node can stand for it
};
using ResultSpecs = std::vector<ResultSpec>;
// Returns the view of t that spec describes, as op's result.
Tensor alias(OpId op, const Tensor& t, const ResultSpec& spec);

// Raises an error that names op and argument if dtype cannot hold a number (PyTorch's rule, see converts).
void check_converts(OpId op, size_t argument, const Value& v, DType dtype);

struct VjpContext;  // ops/grad/vjp.h
using MetaFn = ResultSpecs (*)(OpId op, const Args& args);
using VjpFn = void (*)(VjpContext& ctx);
using DecomposeFn = Results (*)(const Args& args);
using ParallelFor = void (*)(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);
using DynamicFn = Results (*)(const Args& args, ParallelFor parallel);

struct OpInfo {
  OpId id;
  const char* name;
  std::vector<ArgInfo> args;
  int results;
  MetaFn meta_rule;
  VjpFn vjp;              // null: not differentiable, or vjp_decomposes
  const char* saves;      // the values that vjp reads, see ops/grad/vjp.h; null without vjp
  bool vjp_decomposes;    // the tape records the decomposition
  DecomposeFn decompose;  // null: primitive
  DynamicFn dynamic;      // null, or makes results whose sizes depend on elements; real tensors only
  uint32_t flags;
  std::string_view lower;      // the rule's name
  AutocastPolicy autocast[2];  // on the CPU, on CUDA
  const char* about;
  std::vector<uint8_t> converted = {};  // arguments marked '~'
  // Runs the rule, then checks that numbers which become the results' dtype fit into it.
  ResultSpecs meta(OpId op, const Args& args) const {
    ResultSpecs specs = meta_rule(op, args);
    for (uint8_t a : converted) check_converts(op, a, args[a], specs[0].dtype);
    return specs;
  }
  bool has(OpFlags f) const { return flags & f; }
  bool is_composite() const { return decompose != nullptr; }
  // Returns whether the op's parts decide which arguments it takes.
  bool takes_as_parts() const { return flags & (kAtCall | kByParts); }
};

// Parses a row's schema. Throws Error(kInternal) if it is malformed.
std::vector<ArgInfo> parse_schema(std::string_view schema);
// Parses the constant `text` for an argument.
Value parse_constant(const ArgInfo& arg, std::string_view text);

const OpInfo& info(OpId id);
inline const char* name(OpId id) { return info(id).name; }
// Returns the op of that name, or OpId::kCount.
OpId find_op(std::string_view name);

}  // namespace lutra
