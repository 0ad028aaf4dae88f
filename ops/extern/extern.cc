// A call in; the first candidate of its device's table that takes it runs.
#include "ops/extern/extern.h"

#include "ops/core/error.h"

namespace lutra {
namespace {

std::span<const ExternKernel>& table_of(DeviceType type) {
  static std::span<const ExternKernel> tables[kMostDeviceTypes];
  return tables[size_t(type)];
}

DType dtype_of(const ExternCall& call) { return call.in.empty() ? call.out[0].dtype : call.in[0].dtype; }

const ExternKernel* pick(const ExternCall& call) {
  for (const ExternKernel& k : table_of(call.device.type)) {
    if (k.op == call.op && k.supports(dtype_of(call)) && (!k.takes || k.takes(call))) return &k;
  }
  return nullptr;
}

}  // namespace

void fail_dims(const char* op, size_t dims) {
  fail(op, ": tensors of more than ", kExternDims, " dimensions are not supported, got ", dims);
}

void set_extern_table(DeviceType type, std::span<const ExternKernel> table) { table_of(type) = table; }

bool extern_supports(OpId op, DType dtype, DeviceType device) {
  for (const ExternKernel& k : table_of(device)) {
    if (k.op == op && k.supports(dtype)) return true;
  }
  return false;
}

const char* extern_candidate(const ExternCall& call) {
  const ExternKernel* k = pick(call);
  return k ? k->name : nullptr;
}

void run_extern(const ExternCall& call) {
  if (const ExternKernel* k = pick(call)) return k->run(call);
  fail(name(call.op), ": not implemented for ", name(dtype_of(call)), " on ", to_string(call.device));
}

}  // namespace lutra
