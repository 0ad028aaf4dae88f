// Lists the members of an artifact's parts, for writing and reading.
#pragma once
#include "jit/artifact/archive.h"
#include "jit/artifact/artifact.h"

namespace lutra::artifact {

template <>
struct EnumSize<DType> : std::integral_constant<uint64_t, uint64_t(DType::kNone) + 1> {};
template <>
struct EnumSize<DeviceType> : std::integral_constant<uint64_t, kMaxDeviceTypes> {};
template <>
struct EnumSize<OpId> : std::integral_constant<uint64_t, uint64_t(OpId::kCount)> {};
template <>
struct EnumSize<SymOp> : std::integral_constant<uint64_t, uint64_t(kLastSymOp) + 1> {};
template <>
struct EnumSize<SymCmp> : std::integral_constant<uint64_t, uint64_t(SymCmp::kExact) + 1> {};
template <>
struct EnumSize<loop::Op> : std::integral_constant<uint64_t, uint64_t(loop::Op::kCount)> {};
template <>
struct EnumSize<loop::RedOp> : std::integral_constant<uint64_t, uint64_t(loop::RedOp::kAll) + 1> {};
template <>
struct EnumSize<loop::LoopMode> : std::integral_constant<uint64_t, uint64_t(loop::LoopMode::kLanes) + 1> {};
template <>
struct EnumSize<Buffer::Kind> : std::integral_constant<uint64_t, uint64_t(Buffer::kTemp) + 1> {};
template <>
struct EnumSize<PlanOutput::Kind> : std::integral_constant<uint64_t, uint64_t(PlanOutput::kNone) + 1> {};

// Archives for people use the names, "x.type, x.index".
#define LUTRA_FIELDS(type, ...)                         \
  template <class A>                                    \
  void fields(A& a, typename A::template Ref<type> x) { \
    a.fields_of(#__VA_ARGS__, __VA_ARGS__);             \
  }
LUTRA_FIELDS(Device, x.type, x.index)
LUTRA_FIELDS(SymExpr, x.op, x.a, x.b, x.i, x.d)
LUTRA_FIELDS(SymGuard, x.cmp, x.a, x.b, x.outcome)
LUTRA_FIELDS(loop::Coef, x.arg, x.literal)
LUTRA_FIELDS(loop::Access::Term, x.is_value, x.id, x.stride)
LUTRA_FIELDS(loop::Access, x.ptr, x.offset, x.terms)
LUTRA_FIELDS(loop::Inst, x.op, x.type, x.id, x.a, x.b, x.c, x.arg, x.imm, x.iimm, x.access)
LUTRA_FIELDS(loop::Accumulator, x.op, x.type, x.id, x.lanes, x.block)
LUTRA_FIELDS(loop::Loop, x.id, x.size, x.mode, x.parallel, x.accs, x.body)
LUTRA_FIELDS(loop::Param, x.type, x.written, x.shared)
LUTRA_FIELDS(loop::Kernel, x.name, x.params, x.ints, x.scalars, x.values, x.loops, x.body)
LUTRA_FIELDS(Buffer, x.kind, x.dtype, x.elements, x.index, x.storage)
LUTRA_FIELDS(ArenaSlot, x.bytes, x.first, x.last)
LUTRA_FIELDS(BufferView, x.buffer, x.dtype, x.sizes, x.strides, x.offset)
LUTRA_FIELDS(Fault, x.arg, x.dim, x.op, x.file, x.line, x.wraps, x.target, x.text)
LUTRA_FIELDS(KernelLaunch, x.kernel, x.buffers, x.ints, x.scalars, x.extent, x.work, x.beside, x.repeats, x.op,
             x.faults, x.file, x.line)
LUTRA_FIELDS(ExternLaunch, x.op, x.in, x.out, x.ints, x.scalars, x.strings, x.functions, x.symbols, x.file, x.line)
LUTRA_FIELDS(PlanOutput, x.kind, x.view, x.scalar)
LUTRA_FIELDS(Plan, x.exprs, x.guards, x.device, x.buffers, x.slots, x.launches, x.outputs, x.constants, x.positions,
             x.mutated, x.rng_calls, x.functions)
LUTRA_FIELDS(Codes, x.images, x.of_launch, x.functions)
LUTRA_FIELDS(Constant, x.given, x.dtype, x.sizes, x.strides, x.bytes)
#undef LUTRA_FIELDS

}  // namespace lutra::artifact
