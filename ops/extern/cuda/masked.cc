// masked_scatter and its gradient, masked_select, nonzero. The places where a mask is true take the source's elements
// in order, or return theirs, or are listed. Chunks of the mask are counted and the counts summed up. Each chunk then
// knows the number of its first element.
#include "ops/core/storage.h"
#include "ops/defs/call.h"
#include "ops/extern/cpu/strided.h"
#include "ops/extern/cpu/views.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/launch.h"
#include "ops/extern/dynamic.h"

namespace lutra::cuda {
namespace {

constexpr int64_t kChunk = 1024;

const ExternSource kSource = {"masked", R"cuda(
#define CHUNK 1024
// Returns the sum of v over the earlier threads of the block (of 256). `all` gets the sum over the block.
DEV int sum_before(int v, int* all) {
  __shared__ int sums[2][256];
  const int t = threadIdx.x;
  sums[0][t] = v;
  int from = 0;
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    sums[1 - from][t] = sums[from][t] + (t >= step ? sums[from][t - step] : 0);
    from = 1 - from;
    __syncthreads();
  }
  *all = sums[from][255];
  return sums[from][t] - v;
}
DEV bool is_set(const View& mask, i64 i, i64 n) { return i < n && ((const u8*)mask.data)[place(mask, i)] != 0; }
DEV int count_of(const View& mask, i64 i, i64 n) {
  int count = 0;
  for (int k = 0; k < 4; k++) count += is_set(mask, i + k, n);
  return count;
}
KERNEL count_chunks(View mask, i64 n, i64* counts) {
  sync_dependencies();
  int all;
  sum_before(count_of(mask, (i64)blockIdx.x * CHUNK + threadIdx.x * 4, n), &all);
  if (threadIdx.x == 0) counts[blockIdx.x] = all;
}
// Replaces each count by the sum of the counts before it. The total comes last.
KERNEL sum_counts(i64* counts, i64 chunks) {
  sync_dependencies();
  __shared__ i64 sums[256];
  const i64 each = (chunks + 255) / 256, begin = threadIdx.x * each;
  const i64 end = begin + each < chunks ? begin + each : chunks;
  i64 sum = 0;
  for (i64 i = begin; i < end; i++) sum += counts[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  i64 before = 0;
  for (int t = 0; t < (int)threadIdx.x; t++) before += sums[t];
  for (i64 i = begin; i < end; i++) {
    const i64 c = counts[i];
    counts[i] = before;
    before += c;
  }
  if (threadIdx.x == 255) counts[chunks] = before;
}
KERNEL put_masked(View out, View mask, View source, i64 n, const i64* before, i64 chunks, i64 have, int exact,
                  Fault* fault, i64 site) {
  sync_dependencies();
  const i64 total = before[chunks];
  const bool bad = exact ? total != have : total > have;
  const i64 first = (i64)blockIdx.x * CHUNK + threadIdx.x * 4;
  int all;
  i64 k = before[blockIdx.x] + sum_before(count_of(mask, first, n), &all);
  if (bad) {
    if (first == 0) report(fault, site, 0, total, have);
    return;
  }
  for (i64 i = first; i < first + 4; i++) {
    if (is_set(mask, i, n)) ((T0*)out.data)[place(out, i)] = ((const T0*)source.data)[place(source, k++)];
  }
}
// Writes the index of each set element. `out` has a vector of `found` elements for each dim of the index.
KERNEL tell_places(View mask, i64* out, i64 n, const i64* before, i64 found) {
  sync_dependencies();
  const i64 first = (i64)blockIdx.x * CHUNK + threadIdx.x * 4;
  int all;
  i64 k = before[blockIdx.x] + sum_before(count_of(mask, first, n), &all);
  for (i64 i = first; i < first + 4; i++) {
    if (!is_set(mask, i, n)) continue;
    i64* const row = out + k++;
    i64 rest = i;
    for (int d = mask.dim - 1; d >= 0; d--) {
      const i64 size = mask.sizes[d], q = d == 0 ? 0 : ((u64)rest >> 32) ? rest / size : (i64)((u32)rest / (u32)size);
      row[d * found] = rest - q * size;
      rest = q;
    }
  }
}
KERNEL take_masked(View in, View mask, T0* out, i64 n, const i64* before, i64 size) {
  sync_dependencies();
  const i64 first = (i64)blockIdx.x * CHUNK + threadIdx.x * 4;
  int all;
  i64 k = before[blockIdx.x] + sum_before(count_of(mask, first, n), &all);
  for (i64 i = first; i < first + 4; i++) {
    if (!is_set(mask, i, n)) continue;
    if (k < size) out[k] = ((const T0*)in.data)[place(in, i)];
    k++;
  }
}
)cuda"};

// Returns the number of the first set element of each chunk, then the total.
int64_t* numbers(Launcher& l, const ExternView& mask, int64_t chunks) {
  auto* counts = l.scratch<int64_t>(chunks + 1);
  l.run({kSource, "count_chunks", {DType::kUInt8}}, {chunks}, 256, mask, mask.numel(), counts);
  l.run({kSource, "sum_counts", {DType::kUInt8}}, {1}, 256, counts, chunks);
  return counts;
}

int64_t count_site(OpId op) {
  const bool assign = op == OpId::masked_assign;
  return fault_site(assign ? "masked_assign count" : "masked_scatter count", [assign](const LaunchFault& f) {
    if (assign) {
      return Error(ErrorKind::kData,
                   str("index: ", f.bound, " values for ", f.index, " places where the mask is true"));
    }
    return Error(ErrorKind::kData,
                 str("masked_scatter: the mask has ", f.index, " true elements, source has ", f.bound));
  });
}

}  // namespace

void run_masked_scatter(const ExternCall& call) {
  Launcher l(call);
  const ExternView &out = call.out[0], &source = call.in[2];
  const ExternView mask = broadcast_view(call.in[1], out);
  if (out.data != call.in[0].data) copy_view(l, broadcast_view(call.in[0], out), out);
  const int64_t n = out.numel(), chunks = (n + kChunk - 1) / kChunk, have = source.numel();
  const bool exact = call.op == OpId::masked_assign;
  if (n == 0) {
    if (exact && have != 0) {
      throw Error(ErrorKind::kData, str("index: ", have, " values for 0 places where the mask is true"));
    }
    return;
  }
  const int64_t* before = numbers(l, mask, chunks);
  l.run({kSource, "put_masked", {out.dtype}}, {chunks}, 256, out, mask, source, n, before, chunks, have, int(exact),
        l.fault(), count_site(call.op));
}

void run_masked_gather(const ExternCall& call) {
  Launcher l(call);
  const ExternView &in = call.in[0], &out = call.out[0];
  const ExternView mask = broadcast_view(call.in[1], in);
  const int64_t n = in.numel(), chunks = (n + kChunk - 1) / kChunk, size = out.numel();
  l.zero(out.data, size_t(size) * size_of(out.dtype));
  if (n == 0 || size == 0) return;
  const int64_t* before = numbers(l, mask, chunks);
  l.run({kSource, "take_masked", {out.dtype}}, {chunks}, 256, in, mask, out.data, n, before, size);
}

namespace {

// Makes the call of an op that computes its result's size itself.
ExternCall dynamic_call(OpId op, Device device) {
  ExternCall call;
  call.op = op, call.device = device;
  return call;
}

// Returns the number of the first set element of each chunk. It waits for the GPU and sets `total`.
const int64_t* counted(Launcher& l, const ExternView& mask, int64_t chunks, int64_t& total) {
  const int64_t* before = numbers(l, mask, chunks);
  copy_bytes(&total, Device{}, before + chunks, l.call.device, sizeof total);
  return before;
}

Results run_nonzero(const Args& args) {
  const Tensor x = args[0].tensor();
  const Tensor flags = is_bool(x->dtype) ? x : op1(OpId::ne, {x, Scalar::of_int(0)});
  const ExternView mask = view_of(flags);
  const ExternCall call = dynamic_call(OpId::nonzero, x->device());
  Launcher l(call);
  const int64_t n = mask.numel(), chunks = (n + kChunk - 1) / kChunk;
  int64_t total = 0;
  const int64_t* before = n ? counted(l, mask, chunks, total) : nullptr;
  const Tensor out = make_tensor({total, mask.dim}, {1, total}, DType::kInt64, x->device());
  if (total && mask.dim)
    l.run({kSource, "tell_places", {DType::kUInt8}}, {chunks}, 256, mask, out->data(), n, before, total);
  return {out};
}

Results run_masked_select(const Args& args) {
  const Tensor x = args[0].tensor();
  ExternView in = view_of(x), mask = view_of(args[1].tensor());
  broadcast_views(in, mask);
  const ExternCall call = dynamic_call(OpId::masked_select, x->device());
  Launcher l(call);
  const int64_t n = mask.numel(), chunks = (n + kChunk - 1) / kChunk;
  int64_t total = 0;
  const int64_t* before = n ? counted(l, mask, chunks, total) : nullptr;
  const Tensor out = make_tensor({total}, x->dtype, x->device());
  if (total)
    l.run({kSource, "take_masked", {info(x->dtype).carrier}}, {chunks}, 256, in, mask, out->data(), n, before, total);
  return {out};
}

// The caller reads the element.
Results run_tell_number(const Args& args) {
  const Tensor x = args[0].tensor(), out = make_tensor({}, x->dtype, x->device());
  copy_bytes(out->data(), x->device(), x->data(), x->device(), sizeof(double));
  return {out};
}

const DynamicKernel kDynamic[] = {
    {OpId::nonzero, run_nonzero}, {OpId::masked_select, run_masked_select}, {OpId::tell_number, run_tell_number}};
[[maybe_unused]] const bool registered = (set_dynamic_table(DeviceType::kCUDA, kDynamic), true);

}  // namespace

}  // namespace lutra::cuda
