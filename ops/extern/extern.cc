// Runs a call by the first candidate of its device's table that takes it.
#include "ops/extern/extern.h"

#include <algorithm>

#include "ops/core/error.h"

namespace lutra {
namespace {

struct ExternTable {
  std::span<const ExternKernel> rows;
  bool by_threads = false;
};
ExternTable& entry_of(DeviceType type) {
  static ExternTable tables[kMaxDeviceTypes];
  return tables[size_t(type)];
}
std::span<const ExternKernel> table_of(DeviceType type) { return entry_of(type).rows; }

DType dtype_of(const ExternCall& call) { return call.in.empty() ? call.out[0].dtype : call.in[0].dtype; }

bool is_taken(const ExternKernel& k, const ExternCall& call) {
  return k.op == call.op && k.supports(dtype_of(call)) && (!k.takes || k.takes(call));
}

const ExternKernel* pick(const ExternCall& call) {
  for (const ExternKernel& k : table_of(call.device.type)) {
    if (is_taken(k, call)) return &k;
  }
  return nullptr;
}

constexpr int kMaxCuts = 4;

// Adds options that cut the call as for other numbers of threads. Fewer and larger pieces pack less; more and smaller
// pieces balance the load.
void add_cuts(const ExternCall& call, ExternOption option, std::vector<ExternOption>& out) {
  if (!extern_goes_by_threads(call.device.type)) return out.push_back(option);
  const int n = call.threads;
  for (const int threads : {n, 1, n / 2, 2 * n, kMaxCuts * n}) {
    option.threads = threads;
    if (threads > 0 && std::find(out.begin(), out.end(), option) == out.end()) out.push_back(option);
  }
}

}  // namespace

void fail_dims(const char* op, size_t dims) {
  fail(op, ": tensors of more than ", kExternDims, " dimensions are not supported, got ", dims);
}

void set_extern_table(DeviceType type, std::span<const ExternKernel> table, bool by_threads) {
  entry_of(type) = {table, by_threads};
}

bool extern_goes_by_threads(DeviceType type) { return entry_of(type).by_threads; }

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

const char* run_extern(const ExternCall& call) {
  if (const ExternKernel* k = pick(call)) return k->run(call), k->name;
  fail(name(call.op), ": not implemented for ", name(dtype_of(call)), " on ", to_string(call.device));
}

std::vector<ExternOption> extern_options(const ExternCall& call) {
  std::vector<ExternOption> out;
  const auto table = table_of(call.device.type);
  for (size_t row = 0; row < table.size(); row++) {
    if (!is_taken(table[row], call) || (table[row].stands_in && !out.empty())) continue;
    if (table[row].once) return {{int(row), 0, 0}};
    for (int way = 0; way < table[row].ways; way++) add_cuts(call, {int(row), way, 0}, out);
  }
  return out;
}

const char* extern_candidate(const ExternCall& call, const ExternOption& option) {
  const auto table = table_of(call.device.type);
  if (option.row < 0 || size_t(option.row) >= table.size()) return nullptr;
  const ExternKernel& k = table[size_t(option.row)];
  const bool exists = option.way >= 0 && option.way < k.ways && option.threads >= 0;
  return exists && option.threads <= kMaxCuts * call.threads && is_taken(k, call) ? k.name : nullptr;
}

void run_extern(const ExternCall& call, const ExternOption& option) {
  LUTRA_CHECK(extern_candidate(call, option));
  ExternCall cut = call;
  cut.way = option.way;
  if (option.threads) cut.threads = option.threads;
  table_of(call.device.type)[size_t(option.row)].run(cut);
}

int extern_row(OpId op, DeviceType device, std::string_view candidate) {
  const auto table = table_of(device);
  for (size_t row = 0; row < table.size(); row++) {
    if (table[row].op == op && candidate == table[row].name) return int(row);
  }
  return -1;
}

}  // namespace lutra
