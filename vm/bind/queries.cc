// Queries about a tensor's layout, and about the dtype of results.
#include <algorithm>

#include "ops/core/closest.h"
#include "ops/meta/rules.h"
#include "ops/meta/spatial.h"
#include "vm/bind/functions.h"

namespace lutra {

int64_t wrap_dim(const char* fn, int64_t dim, int64_t rank) {
  const int64_t bound = std::max<int64_t>(rank, 1);
  if (dim < -bound || dim >= bound) {
    fail(fn, ": dimension ", dim, " is out of range for a tensor of ", rank, rank == 1 ? " dimension" : " dimensions",
         " (expected ", -bound, " to ", bound - 1, ")");
  }
  return dim < 0 ? dim + bound : dim;
}

namespace {

LuaResults all_of(const Sizes& sizes) {
  LuaResults out;
  for (SymInt s : sizes) out.push_back(vint(s));
  return out;
}

LuaResults one_of(const char* fn, const Tensor& t, const Sizes& sizes, Args& a) {
  return {vint(sizes[wrap_dim(fn, a[1].sym_int().guard(), t->dim())])};
}

LuaResults size_dim(Args& a) {
  if (a[0].tensor()->dim() == 0) fail("size: a tensor of no dimensions has no size ", a[1].sym_int().hint);
  return one_of("size", a[0].tensor(), a[0].tensor()->sizes, a);
}

LuaResults stride_dim(Args& a) {
  if (a[0].tensor()->dim() == 0) fail("stride: a tensor of no dimensions has no stride ", a[1].sym_int().hint);
  return one_of("stride", a[0].tensor(), a[0].tensor()->strides, a);
}

LuaResults is_contiguous(Args& a) {
  const std::string& format = a[1].as<std::string>();
  if (format != "contiguous_format" && format != "channels_last") {
    const KnownNames known = {"contiguous_format", "channels_last"};
    fail("is_contiguous: memory_format '", format, "' is unknown", known.expected(format));
  }
  return {is_contiguous_as(a[0].tensor(), format)};
}

// Returns whether `out=` of the second dtype accepts results of the first: its kind must not be lower.
LuaResults can_cast(Args& a) { return {info(a[0].as<DType>()).kind <= info(a[1].as<DType>()).kind}; }

LuaResults is_signed(Args& a) {
  const DType t = a[0].tensor()->dtype;
  return {!is_bool(t) && !std::string_view(name(t)).starts_with("uint")};
}

const HostFunction kQueryRows[] = {
    {"size", "Tensor input", kBoth, [](Args& a) { return all_of(a[0].tensor()->sizes); }},
    {"size", "Tensor input, int dim", kBoth, size_dim},
    {"stride", "Tensor input", kBoth, [](Args& a) { return all_of(a[0].tensor()->strides); }},
    {"stride", "Tensor input, int dim", kBoth, stride_dim},
    {"dim", "Tensor input", kBoth, [](Args& a) -> LuaResults { return {vdim(a[0].tensor()->dim())}; }},
    {"ndimension", "Tensor input", kMethod, [](Args& a) -> LuaResults { return {vdim(a[0].tensor()->dim())}; }},
    {"numel", "Tensor input", kBoth, [](Args& a) -> LuaResults { return {vint(a[0].tensor()->numel())}; }},
    {"nelement", "Tensor input", kMethod, [](Args& a) -> LuaResults { return {vint(a[0].tensor()->numel())}; }},
    {"element_size", "Tensor input", kMethod,
     [](Args& a) -> LuaResults { return {vdim(int64_t(size_of(a[0].tensor()->dtype)))}; }},
    {"storage_offset", "Tensor input", kMethod, [](Args& a) -> LuaResults { return {vint(a[0].tensor()->offset)}; }},
    {"is_contiguous", "Tensor input, *, str memory_format='contiguous_format'", kBoth, is_contiguous},
    {"is_floating_point", "Tensor input", kBoth,
     [](Args& a) -> LuaResults { return {is_float(a[0].tensor()->dtype)}; }},
    {"is_signed", "Tensor input", kBoth, is_signed},
    {"can_cast", "dtype from_, dtype to", kFunctionOf, can_cast},
    {"result_type", "Operand tensor1, Operand tensor2", kFunctionOf,
     [](Args& a) -> LuaResults { return {Promotion().add(a[0]).add(a[1]).type()}; }},
    {"promote_types", "dtype type1, dtype type2", kFunctionOf,
     [](Args& a) -> LuaResults { return {promote_types(a[0].as<DType>(), a[1].as<DType>())}; }},
    {"is_conj", "Tensor input", kBoth, [](Args&) -> LuaResults { return {false}; }},
    {"is_neg", "Tensor input", kBoth, [](Args&) -> LuaResults { return {false}; }},
    {"is_complex", "Tensor input", kBoth, [](Args& a) -> LuaResults { return {is_complex(a[0].tensor()->dtype)}; }},
    {"__len", "Tensor input", 0,
     [](Args& a) -> LuaResults {
       if (a[0].tensor()->dim() == 0) fail("#: a tensor of no dimensions has no length");
       return {vint(a[0].tensor()->sizes[0])};
     }},
};

}  // namespace

std::span<const HostFunction> query_rows() { return kQueryRows; }

}  // namespace lutra
