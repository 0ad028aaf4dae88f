// sort and topk: converts rows of elements to keys. A short row is sorted in shared memory, a long one by its digits,
// the lowest first. Few keys are ranked by counting instead, also those of tiles whose first ones are wanted. Equal
// elements keep their order and NaNs are the largest, so there is one right answer.
#include "ops/extern/cuda/sort.h"

#include <algorithm>
#include <bit>

#include "ops/extern/cuda/kernels.h"

namespace lutra::cuda {
namespace {

constexpr int64_t kTile = 2048;         // keys of a row that a block sorts
constexpr int64_t kTopTile = 1024;      // keys of a tile whose first ones are found; a quarter of them at most
constexpr int64_t kMinTile = 256;       // the same if keys are ranked by counting
constexpr int64_t kCompared = 1 << 25;  // the most comparisons for ranking by counting

// VARIANT: log2 of the tile. A block has half as many threads as a tile has keys, and sorts one tile. For small tiles
// it has 256 threads and sorts several.
const ExternSource kTileSource = {"sort_tile", R"cuda(
#define TILE (1 << VARIANT)
#define KEYS (TILE < 512 ? 512 : TILE)
DEV void sort_keys(u64* key, u32* at) {
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
}
// Sorts the keys of rows that fit in a tile, with their positions within the row.
KERNEL BOUNDS(1024) sort_tiles(const u64* keys, u64* out, u32* positions, i64 rows, i64 n) {
  sync_dependencies();
  __shared__ u64 key[KEYS];
  __shared__ u32 at[KEYS];
  const i64 first = (i64)blockIdx.x * (KEYS / TILE);
  for (int i = threadIdx.x; i < KEYS; i += blockDim.x) {
    const i64 row = first + i / TILE, place = i % TILE;
    const bool in = row < rows && place < n;
    key[i] = in ? keys[row * n + place] : ~0ull;
    at[i] = in ? (u32)place : 0xffffffffu;
  }
  sort_keys(key, at);
  for (int i = threadIdx.x; i < KEYS; i += blockDim.x) {
    const i64 row = first + i / TILE, place = i % TILE;
    if (row < rows && place < n) out[row * n + place] = key[i], positions[row * n + place] = at[i];
  }
}
// Finds the first k keys of each tile of a row of n keys. Their positions come from `from` if that is given. The
// padding of a row's last tile sorts behind all keys of the row.
KERNEL BOUNDS(1024) top_of_tiles(const u64* keys, const u32* from, u64* out, u32* positions, i64 n, int tiles, int k) {
  sync_dependencies();
  __shared__ u64 key[KEYS];
  __shared__ u32 at[KEYS];
  const i64 row = blockIdx.x / tiles, first = blockIdx.x % tiles * (i64)TILE;
  for (int i = threadIdx.x; i < TILE; i += blockDim.x) {
    const bool in = first + i < n;
    key[i] = in ? keys[row * n + first + i] : ~0ull;
    at[i] = in ? (u32)(first + i) : 0xffffffffu;
  }
  sort_keys(key, at);
  for (int i = threadIdx.x; i < k; i += blockDim.x) {
    const i64 to = (i64)blockIdx.x * k + i;
    out[to] = key[i];
    positions[to] = from && at[i] != 0xffffffffu ? from[row * n + at[i]] : at[i];
  }
}
)cuda"};

const ExternSource kRankSource = {"sort_rank", R"cuda(
// Sorts by rank: a key's place is the number of keys before it. A warp ranks 4 keys; its lanes compare them with the
// others.
KERNEL BOUNDS(256) rank_keys(const u64* keys, u64* out, u32* positions, i64 n) {
  sync_dependencies();
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
// Computes the same as top_of_tiles, by rank. A tile has at most 2048 keys.
KERNEL BOUNDS(256) rank_tiles(const u64* keys, const u32* from, u64* out, u32* positions, i64 n, int tile, int tiles,
                              int k) {
  sync_dependencies();
  __shared__ u64 key[2048];
  const int blocks = (tile + 31) / 32, lane = threadIdx.x % 32;
  const i64 which = blockIdx.x / blocks, begin = which % tiles * tile, row = which / tiles * n + begin;
  const int count = (int)(n - begin < tile ? n - begin : tile);
  for (int i = threadIdx.x; i < count; i += 256) key[i] = keys[row + i];
  __syncthreads();
  const int first = (int)(blockIdx.x % blocks) * 32 + threadIdx.x / 32 * 4;
  u64 mine[4];
  int before[4];
#pragma unroll
  for (int q = 0; q < 4; q++) mine[q] = first + q < count ? key[first + q] : 0, before[q] = 0;
#pragma unroll 4
  for (int j = lane; j < count; j += 32) {
    const u64 other = key[j];
#pragma unroll
    for (int q = 0; q < 4; q++) before[q] += other < mine[q] || (other == mine[q] && j < first + q);
  }
#pragma unroll
  for (int q = 0; q < 4; q++) {
    for (int m = 1; m < 32; m *= 2) before[q] += __shfl_xor_sync(0xffffffffu, before[q], m);
    // If a tile has fewer than k keys, padding comes behind them.
    const bool in = first + q < count;
    const int place = in ? before[q] : first + q;
    if (lane != q || first + q >= tile || place >= k) continue;
    out[which * k + place] = in ? mine[q] : ~0ull;
    positions[which * k + place] = !in ? 0xffffffffu : from ? from[row + first + q] : (u32)(begin + first + q);
  }
}
)cuda"};

constexpr int64_t kPart = 4096;  // keys that a block sorts by a digit
constexpr int kDigitBits = 8;

// A row has parts of 4096 keys. A pass sorts by a digit of 8 bits. Each part counts its digits. The counts are added up
// over the parts before it. Keys go behind those of lower digits, of earlier parts, of earlier warps and of earlier
// turns.
const ExternSource kDigitSource = {"sort_digits", R"cuda(
#define THREADS 256
#define TURNS 16
#define PART (THREADS * TURNS)
KERNEL BOUNDS(THREADS) count_digits(const u64* keys, u32* counts, i64 n, i64 parts, int shift) {
  sync_dependencies();
  __shared__ u32 bins[256];
  const i64 row = blockIdx.x / parts, part = blockIdx.x % parts;
  bins[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 4
  for (int k = 0; k < TURNS; k++) {
    const i64 i = part * PART + k * THREADS + threadIdx.x;
    if (i < n) atomicAdd(&bins[keys[row * n + i] >> shift & 255], 1u);
  }
  __syncthreads();
  counts[(row * 256 + threadIdx.x) * parts + part] = bins[threadIdx.x];
}
// Returns the sum of v over the lanes up to this one.
DEV u32 sum_to(u32 v, int lane) {
  for (int d = 1; d < 32; d *= 2) {
    const u32 before = __shfl_sync(0xffffffffu, v, lane - d);
    if (lane >= d) v += before;
  }
  return v;
}
// Replaces each count of a row and digit by the sum of those before it. A warp handles one row and digit.
KERNEL BOUNDS(256) sum_counts(u32* counts, u32* totals, i64 digits, i64 parts) {
  sync_dependencies();
  const i64 digit = thread_number() / 32;
  const int lane = threadIdx.x % 32;
  if (digit >= digits) return;
  u32 before = 0;
  for (i64 p = 0; p < parts; p += 32) {
    const u32 v = p + lane < parts ? counts[digit * parts + p + lane] : 0, sum = sum_to(v, lane);
    if (p + lane < parts) counts[digit * parts + p + lane] = before + sum - v;
    before += __shfl_sync(0xffffffffu, sum, 31);
  }
  if (lane == 0) totals[digit] = before;
}
KERNEL BOUNDS(THREADS) place_digits(const u64* keys, const u32* positions, u64* out, u32* out_positions,
                                    const u32* counts, const u32* totals, i64 n, i64 parts, int shift) {
  sync_dependencies();
  __shared__ u32 warps[THREADS / 32], seen[THREADS / 32][256];
  const i64 row = blockIdx.x / parts, part = blockIdx.x % parts;
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const u32 total = totals[row * 256 + t], sum = sum_to(total, lane);
  if (lane == 31) warps[warp] = sum;
  for (int w = 0; w < THREADS / 32; w++) seen[w][t] = 0;
  __syncthreads();
  u32 base = sum - total + counts[(row * 256 + t) * parts + part];
  for (int w = 0; w < warp; w++) base += warps[w];
  u64 key[TURNS];
  u32 rank[TURNS];
  const i64 first = part * PART + warp * (32 * TURNS) + lane;
#pragma unroll
  for (int k = 0; k < TURNS; k++) key[k] = first + k * 32 < n ? keys[row * n + first + k * 32] : 0;
#pragma unroll
  for (int k = 0; k < TURNS; k++) {
    const bool in = first + k * 32 < n;
    const u32 digit = key[k] >> shift & 255, same = __match_any_sync(0xffffffffu, in ? digit : 256u + lane);
    const u32 before = in ? seen[warp][digit] : 0;
    rank[k] = before + __popc(same & ((1u << lane) - 1));
    __syncwarp();
    if (in && !(same & ((1u << lane) - 1))) seen[warp][digit] = before + __popc(same);
    __syncwarp();
  }
  __syncthreads();
  for (int w = 0; w < THREADS / 32; w++) {
    const u32 here = seen[w][t];
    seen[w][t] = base;
    base += here;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < TURNS; k++) {
    const i64 i = first + k * 32;
    if (i >= n) break;
    const i64 to = row * n + seen[warp][key[k] >> shift & 255] + rank[k];
    out[to] = key[k], out_positions[to] = positions ? positions[row * n + i] : (u32)i;
  }
}
)cuda"};

const ExternSource kRowSource = {"sort_row", R"cuda(
// Returns the offset of row r, where rows are counted over all dims but `dim`.
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
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= rows * n) return;
  const i64 stride = in.dim ? in.strides[dim] : 0;
  const u64 k = sort_key(((const T0*)in.data)[row_place(in, dim, i / n) + i % n * stride]);
  keys[i] = descending ? ~k : k;
}
KERNEL put_sorted(View in, View values, View indices, int dim, i64 rows, i64 n, i64 k, const u32* positions) {
  sync_dependencies();
  const i64 i = thread_number();
  if (i >= rows * k) return;
  const i64 row = i / k, j = i % k, at = positions[row * n + j];
  const i64 from = row_place(in, dim, row) + at * (in.dim ? in.strides[dim] : 0);
  ((T0*)values.data)[row_place(values, dim, row) + j * (values.dim ? values.strides[dim] : 0)] =
      ((const T0*)in.data)[from];
  ((i64*)indices.data)[row_place(indices, dim, row) + j * (indices.dim ? indices.strides[dim] : 0)] = at;
}
)cuda"};

// Returns whether a key's place is found by comparing it with all others.
bool is_compared(int64_t rows, int64_t n) { return n <= 2 * kTile && rows * n * n <= kCompared; }

// Returns the positions of the first k keys of each row, k in a row. It selects the first k of each tile until one tile
// holds them all.
const uint32_t* top_of_rows(Launcher& l, const uint64_t* keys, int64_t rows, int64_t n, int64_t k) {
  const uint32_t* positions = nullptr;
  for (bool last = false; !last;) {
    int64_t tile = n <= kTile ? n : std::max(int64_t(std::bit_ceil(uint64_t(4 * k))), kMinTile);
    const bool counted = rows * n * tile <= kCompared;
    if (!counted) tile = n <= kTile ? kTile : kTopTile;
    const int64_t tiles = (n + tile - 1) / tile;
    auto* top = l.scratch<uint64_t>(rows * tiles * k);
    auto* at = l.scratch<uint32_t>(rows * tiles * k);
    if (counted) {
      l.run({kRankSource, "rank_tiles", {}}, {rows * tiles * ((tile + 31) / 32)}, 256, keys, positions, top, at, n,
            int(tile), int(tiles), int(k));
    } else {
      l.run({kTileSource, "top_of_tiles", {}, std::countr_zero(uint64_t(tile))}, {rows * tiles}, unsigned(tile / 2),
            keys, positions, top, at, n, int(tiles), int(k));
    }
    keys = top, positions = at;
    last = tiles == 1, n = tiles * k;
  }
  return positions;
}

// Writes the first k of each row along dim.
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
  // Each row's positions in order, at least `sorted` of them.
  int64_t sorted = n;
  const uint32_t* positions = k <= kTopTile / 4 && n > kTile && !is_compared(rows, n)
                                  ? top_of_rows(l, keys, rows, n, sorted = k)
                                  : sort_rows(l, keys, rows, n, 8 * int(size_of(in.dtype))).positions;
  l.each({kRowSource, "put_sorted", {in.dtype}}, rows * k, in, values, indices, at, rows, sorted, k, positions);
}

SortedRows by_digits(Launcher& l, uint64_t* keys, int64_t rows, int64_t n, int bits) {
  const int64_t parts = (n + kPart - 1) / kPart, digits = rows << kDigitBits;
  auto* counts = l.scratch<uint32_t>(digits * parts);
  auto* totals = l.scratch<uint32_t>(digits);
  SortedRows from{keys, nullptr}, to{l.scratch<uint64_t>(rows * n), l.scratch<uint32_t>(rows * n)};
  uint32_t* spare = bits > kDigitBits ? l.scratch<uint32_t>(rows * n) : nullptr;
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    l.run({kDigitSource, "count_digits", {}}, {rows * parts}, 256, from.keys, counts, n, parts, shift);
    l.run({kDigitSource, "sum_counts", {}}, {digits / 8}, 256, counts, totals, digits, parts);
    l.run({kDigitSource, "place_digits", {}}, {rows * parts}, 256, from.keys, from.positions, to.keys, to.positions,
          counts, totals, n, parts, shift);
    if (!from.positions) from.positions = spare;
    std::swap(from, to);
  }
  return from;
}

}  // namespace

SortedRows sort_rows(Launcher& l, uint64_t* keys, int64_t rows, int64_t n, int bits) {
  if (is_compared(rows, n)) {
    SortedRows r{l.scratch<uint64_t>(rows * n), l.scratch<uint32_t>(rows * n)};
    l.run({kRankSource, "rank_keys", {}}, {rows * ((n + 31) / 32)}, 256, keys, r.keys, r.positions, n);
    return r;
  }
  if (n > kTile) return by_digits(l, keys, rows, n, bits);
  int log = 1;
  while ((int64_t(1) << log) < n) log++;
  const int64_t tile = int64_t(1) << log, each = std::max<int64_t>(1, 512 / tile);  // tiles in a block
  const SortedRows r{l.scratch<uint64_t>(rows * n), l.scratch<uint32_t>(rows * n)};
  l.run({kTileSource, "sort_tiles", {}, log}, {(rows + each - 1) / each}, unsigned(std::max<int64_t>(256, tile / 2)),
        keys, r.keys, r.positions, rows, n);
  return r;
}

void run_sort(const ExternCall& call) { order_rows(call, call.ints[0], call.ints[1] != 0); }
void run_topk(const ExternCall& call) { order_rows(call, call.ints[1], call.ints[2] != 0); }

}  // namespace lutra::cuda
