// embedding_bag: a thread reduces an element of the rows of a bag.
#include "ops/extern/bags.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {
namespace {

// T0: the table's type. T1, T2: those of ids and offsets.
const ExternSource kBagSource = {"embedding_bag", R"cuda(
typedef Num<T0> N;
typedef N::A A;
DEV i64 id_at(const View& ids, i64 i) { return ((const T1*)ids.data)[place(ids, i)]; }
DEV i64 offset_at(const View& offsets, i64 i) { return ((const T2*)offsets.data)[place(offsets, i)]; }
KERNEL check_ids(View ids, i64 n, i64 rows, Fault* fault, i64 site) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= n) return;
  const i64 v = id_at(ids, i);
  if (v < 0 || v >= rows) report(fault, site, 0, v, rows);
}
KERNEL check_offsets(View offsets, i64 n, i64 ids, Fault* fault, i64 site) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= n) return;
  const i64 v = offset_at(offsets, i);
  if (i == 0 && v != 0) report(fault, site, 0, v, 0);
  else if (v > ids) report(fault, site, 1, v, ids);
  else if (i > 0 && v < offset_at(offsets, i - 1)) report(fault, site, 2, v, 0);
}
// The bag's first id and the one behind its last. Faulty offsets give no id outside.
struct Bounds { i64 first, last; };
DEV Bounds bounds_of(const View& ids, const View& offsets, i64 count, i64 bag) {
  Bounds b;
  if (!offsets.data) {
    b.first = bag * ids.sizes[1], b.last = b.first + ids.sizes[1];
    return b;
  }
  b.first = offset_at(offsets, bag), b.last = bag + 1 < offsets.sizes[0] ? offset_at(offsets, bag + 1) : count;
  if (b.first < 0 || b.last > count) b.first = b.last = 0;
  return b;
}
KERNEL bag_sum(View table, View ids, View offsets, View scales, A* out, i64* counts, i64 total, i64 n, i64 padding,
               int mean, int block) {
  sync_dependencies();
  const i64 i = thread_number(), features = table.sizes[1];
  if (i >= total) return;
  const i64 bag = i / features, feature = i % features;
  const Bounds b = bounds_of(ids, offsets, n, bag);
  const T0* from = (const T0*)table.data + feature * table.strides[1];
  A part = 0, sum = 0, lost = 0;
  i64 rows = 0;
  for (i64 p = b.first; p < b.last; p++) {
    const i64 id = id_at(ids, p);
    if (id == padding || id < 0 || id >= table.sizes[0]) continue;
    if (rows > 0 && rows % block == 0) {
      const A t = sum + part;
      lost += part - (t - sum);
      sum = t, part = 0;
    }
    const A scale = scales.data ? N::up(((const T0*)scales.data)[place(scales, p)]) : (A)1;
    part += N::up(from[id * table.strides[0]]) * scale;
    rows++;
  }
  A result = part;
  if (rows > block) {
    const A t = sum + part;
    lost += part - (t - sum);
    result = lost != lost ? t : t + lost;
  }
  out[i] = mean ? result / (A)(rows > 1 ? rows : 1) : result;
  if (feature == 0) counts[bag] = rows;
}
KERNEL bag_max(View table, View ids, View offsets, i64* out, i64 total, i64 n, i64 padding) {
  sync_dependencies();
  const i64 i = thread_number(), features = table.sizes[1];
  if (i >= total) return;
  const i64 bag = i / features, feature = i % features;
  const Bounds b = bounds_of(ids, offsets, n, bag);
  const T0* from = (const T0*)table.data + feature * table.strides[1];
  A most = 0;
  i64 at = -1;
  for (i64 p = b.first; p < b.last; p++) {
    const i64 id = id_at(ids, p);
    if (id == padding || id < 0 || id >= table.sizes[0]) continue;
    const A v = N::up(from[id * table.strides[0]]);
    if (at < 0 || v > most || (v != v && most == most)) most = v, at = id;
  }
  out[i] = at;
}
)cuda"};

KernelId bag_kernel(const ExternCall& call, const char* name) {
  const ExternView& offsets = call.in[2];
  return {kBagSource, name, {call.in[0].dtype, call.in[1].dtype, offsets.data ? offsets.dtype : DType::kInt64}};
}

void check_bags(Launcher& l) {
  const ExternView &table = l.call.in[0], &ids = l.call.in[1], &offsets = l.call.in[2];
  const int64_t id_site =
      fault_site("embedding_bag id", [](const LaunchFault& f) { return wrong_bag_id(f.index, f.bound); });
  const int64_t offset_site = fault_site(
      "embedding_bag offset", [](const LaunchFault& f) { return wrong_bag_offset(BagOffset(f.arg), f.index); });
  const int64_t n = ids.numel(), all = offsets.data ? offsets.numel() : 0;
  l.each(bag_kernel(l.call, "check_ids"), n, ids, n, table.sizes[0], l.fault(), id_site);
  l.each(bag_kernel(l.call, "check_offsets"), all, offsets, all, n, l.fault(), offset_site);
}

}  // namespace

void run_embedding_bag_sum(const ExternCall& call) {
  Launcher l(call);
  const ExternView &table = call.in[0], &ids = call.in[1], &offsets = call.in[2], &out = call.out[0];
  check_bags(l);
  const int64_t total = out.numel();
  if (total == 0) l.zero(call.out[1].data, size_t(out.sizes[0]) * sizeof(int64_t));
  l.each(bag_kernel(l.call, "bag_sum"), total, table, ids, offsets, call.in[3], out.data, call.out[1].data, total,
         ids.numel(), call.ints[0], int(call.ints[2]), int(kBagBlock));
}

void run_embedding_bag_max(const ExternCall& call) {
  Launcher l(call);
  const ExternView &table = call.in[0], &ids = call.in[1], &offsets = call.in[2], &out = call.out[0];
  check_bags(l);
  const int64_t total = out.numel();
  l.each(bag_kernel(l.call, "bag_max"), total, table, ids, offsets, out.data, total, ids.numel(), call.ints[0]);
}

}  // namespace lutra::cuda
