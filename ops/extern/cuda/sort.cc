// sort and topk: rows of elements become keys, tiles of keys are sorted in shared memory, and sorted tiles are merged
// in pairs until a row is one; few keys are counted instead. Equal elements keep their order and NaNs are the largest:
// there is one right answer.
#include "ops/extern/cuda/sort.h"

#include <algorithm>

#include "ops/extern/cuda/kernels.h"

namespace lutra::cuda {
namespace {

constexpr int64_t kTile = 2048;         // keys that a block sorts
constexpr int64_t kCompared = 1 << 25;  // comparisons up to which keys are only counted

// VARIANT: log2 of the tile. A block of half as many threads as a tile has keys sorts one tile (or several small ones:
// then the block has 256 threads).
const ExternSource kTileSource = {"sort_tile", R"cuda(
#define TILE (1 << VARIANT)
#define KEYS (TILE < 512 ? 512 : TILE)
// Tiles of a row follow each other; the last may be short. Keys with their positions within the row.
KERNEL BOUNDS(1024) sort_tiles(const u64* keys, u64* out, u32* positions, i64 rows, i64 n, i64 tiles) {
  __shared__ u64 key[KEYS];
  __shared__ u32 at[KEYS];
  const i64 first = (i64)blockIdx.x * (KEYS / TILE);
  for (int i = threadIdx.x; i < KEYS; i += blockDim.x) {
    const i64 tile = first + i / TILE, row = tile / tiles, place = tile % tiles * TILE + i % TILE;
    const bool in = row < rows && place < n;
    key[i] = in ? keys[row * n + place] : ~0ull;
    at[i] = in ? (u32)place : 0xffffffffu;
  }
  __syncthreads();
  for (int size = 2; size <= TILE; size *= 2) {
    for (int step = size / 2; step > 0; step /= 2) {
      for (int t = threadIdx.x; t < KEYS / 2; t += blockDim.x) {
        const int low = t / step * 2 * step + t % step, high = low + step;
        const bool up = (low % TILE & size) == 0 || size == TILE;
        const u64 a = key[low], b = key[high];
        const u32 p = at[low], q = at[high];
        const bool greater = a > b || (a == b && p > q);
        if (greater == up) key[low] = b, key[high] = a, at[low] = q, at[high] = p;
      }
      __syncthreads();
    }
  }
  for (int i = threadIdx.x; i < KEYS; i += blockDim.x) {
    const i64 tile = first + i / TILE, row = tile / tiles, place = tile % tiles * TILE + i % TILE;
    if (row < rows && place < n) out[row * n + place] = key[i], positions[row * n + place] = at[i];
  }
}
)cuda"};

const ExternSource kRankSource = {"sort_rank", R"cuda(
// A key's place is the number of keys before it. A warp takes 4 keys, its lanes the keys that they are compared with.
KERNEL BOUNDS(256) rank_keys(const u64* keys, u64* out, u32* positions, i64 n) {
  const i64 blocks = (n + 31) / 32;
  const u64* row = keys + blockIdx.x / blocks * n;
  const int first = (int)(blockIdx.x % blocks * 32 + threadIdx.x / 32 * 4), lane = threadIdx.x % 32;
  u64 mine[4];
  int before[4];
#pragma unroll
  for (int k = 0; k < 4; k++) mine[k] = first + k < n ? row[first + k] : 0, before[k] = 0;
#pragma unroll 8
  for (int j = lane; j < n; j += 32) {
    const u64 key = row[j];
#pragma unroll
    for (int k = 0; k < 4; k++) before[k] += key < mine[k] || (key == mine[k] && j < first + k);
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    for (int m = 1; m < 32; m *= 2) before[k] += __shfl_xor_sync(0xffffffffu, before[k], m);
    const i64 to = blockIdx.x / blocks * n + before[k];
    if (lane == k && first + k < n) out[to] = mine[k], positions[to] = first + k;
  }
}
)cuda"};

const ExternSource kMergeSource = {"sort_merge", R"cuda(
// Runs of `run` sorted keys become runs of twice as many: each key goes to its place in its own run and what of the
// other run comes before it (of equals, the left run's).
KERNEL merge_runs(const u64* keys, const u32* positions, u64* out, u32* out_positions, i64 rows, i64 n, i64 run) {
  const i64 i = thread_number();
  if (i >= rows * n) return;
  const i64 row = i / n, k = i % n, pair = k / (2 * run) * 2 * run;
  const bool left = k - pair < run;
  const i64 other = left ? pair + run : pair, end = left ? other + run : pair + run;
  const u64* base = keys + row * n;
  const u64 key = base[k];
  i64 low = other < n ? other : n, high = end < n ? end : n;
  const i64 begin = low;
  while (low < high) {
    const i64 mid = low + (high - low) / 2;
    if (left ? base[mid] < key : base[mid] <= key) low = mid + 1; else high = mid;
  }
  const i64 to = row * n + pair + (left ? k - pair : k - pair - run) + (low - begin);
  out[to] = key, out_positions[to] = positions[i];
}
)cuda"};

const ExternSource kRowSource = {"sort_row", R"cuda(
// Where row r of a view lies, dim left out.
DEV i64 row_place(const View& v, int dim, i64 r) {
  i64 at = 0;
  for (int d = v.dim - 1; d >= 0; d--) {
    if (d == dim) continue;
    at += r % v.sizes[d] * v.strides[d];
    r /= v.sizes[d];
  }
  return at;
}
KERNEL make_keys(View in, int dim, int descending, i64 rows, i64 n, u64* keys) {
  const i64 i = thread_number();
  if (i >= rows * n) return;
  const i64 stride = in.dim ? in.strides[dim] : 0;
  const u64 k = sort_key(((const T0*)in.data)[row_place(in, dim, i / n) + i % n * stride]);
  keys[i] = descending ? ~k : k;
}
KERNEL put_sorted(View in, View values, View indices, int dim, i64 rows, i64 n, i64 k, const u32* positions) {
  const i64 i = thread_number();
  if (i >= rows * k) return;
  const i64 row = i / k, j = i % k, at = positions[row * n + j];
  const i64 from = row_place(in, dim, row) + at * (in.dim ? in.strides[dim] : 0);
  ((T0*)values.data)[row_place(values, dim, row) + j * (values.dim ? values.strides[dim] : 0)] =
      ((const T0*)in.data)[from];
  ((i64*)indices.data)[row_place(indices, dim, row) + j * (indices.dim ? indices.strides[dim] : 0)] = at;
}
)cuda"};

// The first k of each row along dim.
void order_rows(const ExternCall& call, int64_t dim, bool descending) {
  const ExternView &in = call.in[0], &values = call.out[0], &indices = call.out[1];
  const int at = int(dim < 0 ? dim + std::max(in.dim, 1) : dim);
  const int64_t n = in.dim ? in.sizes[at] : 1, k = values.dim ? values.sizes[at] : 1;
  int64_t rows = 1;
  for (int d = 0; d < in.dim; d++) rows *= d == at ? 1 : in.sizes[d];
  if (n == 0 || k == 0 || rows == 0) return;
  if (n > INT32_MAX) fail(name(call.op), ": dim ", at, " of size ", n, " is too large");
  Launcher l(call);
  auto* keys = l.scratch<uint64_t>(rows * n);
  l.each({kRowSource, "make_keys", {in.dtype}}, rows * n, in, at, int(descending), rows, n, keys);
  const SortedRows sorted = sort_rows(l, keys, rows, n);
  l.each({kRowSource, "put_sorted", {in.dtype}}, rows * k, in, values, indices, at, rows, n, k, sorted.positions);
}

}  // namespace

SortedRows sort_rows(Launcher& l, uint64_t* keys, int64_t rows, int64_t n) {
  if (n <= 2 * kTile && rows * n * n <= kCompared) {
    SortedRows r{l.scratch<uint64_t>(rows * n), l.scratch<uint32_t>(rows * n)};
    l.run({kRankSource, "rank_keys", {}}, {rows * ((n + 31) / 32)}, 256, keys, r.keys, r.positions, n);
    return r;
  }
  int log = 1;
  while ((int64_t(1) << log) < std::min(n, kTile)) log++;
  const int64_t tile = int64_t(1) << log, tiles = (n + tile - 1) / tile;
  const int64_t each = std::max<int64_t>(1, 512 / tile);  // tiles of a block
  SortedRows a{l.scratch<uint64_t>(rows * n), l.scratch<uint32_t>(rows * n)};
  l.run({kTileSource, "sort_tiles", {}, log}, {(rows * tiles + each - 1) / each},
        unsigned(std::max<int64_t>(256, tile / 2)), keys, a.keys, a.positions, rows, n, tiles);
  if (tiles == 1) return a;
  SortedRows b{keys, l.scratch<uint32_t>(rows * n)};
  for (int64_t run = tile; run < n; run *= 2) {
    l.each({kMergeSource, "merge_runs", {}}, rows * n, a.keys, a.positions, b.keys, b.positions, rows, n, run);
    std::swap(a, b);
  }
  return a;
}

void run_sort(const ExternCall& call) { order_rows(call, call.ints[0], call.ints[1] != 0); }
void run_topk(const ExternCall& call) { order_rows(call, call.ints[1], call.ints[2] != 0); }

}  // namespace lutra::cuda
