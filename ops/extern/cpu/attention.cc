// Runs flash_attention and its backward on views of any strides.
//
// Invariants:
// 1. Work is cut by batch, head and block of queries (backward: head, or head and block), a function of sizes alone.
//    Each piece has its own fixed order, so bits do not depend on how many threads share the pieces.
// 2. The kernels write features of unit stride. The meta rules give the results that layout.
#include "ops/extern/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "ops/core/cpu.h"
#include "ops/core/error.h"
#include "ops/core/interrupt.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/scratch.h"

namespace lutra {
namespace {

const AttentionKernels& kernels_for(ExternIsa isa) {
  if constexpr (cpu::kX64) {
    if (isa >= ExternIsa::kAvx512) return kAttentionAvx512;
    if (isa == ExternIsa::kAvx2) return kAttentionAvx2;
  }
  return kAttentionBase;
}

float* attention_scratch(int64_t n) { return scratch<float>(Scratch::kAttention, n, "scaled_dot_product_attention"); }

AttentionOperand operand(const ExternView& v) {
  AttentionOperand o;
  o.data = static_cast<float*>(v.data);
  LUTRA_CHECK(v.dim == 4 && v.dtype == DType::kFloat32, "an operand of attention");
  std::copy(v.strides, v.strides + 4, o.strides);
  return o;
}

AttentionMask mask_of(const ExternView& v) {
  AttentionMask m;
  if (!v.data) return m;
  m.data = v.data;
  m.is_bool = is_bool(v.dtype);
  LUTRA_CHECK(v.dim == 4 && (m.is_bool || v.dtype == DType::kFloat32), "a mask of attention");
  std::copy(v.strides, v.strides + 4, m.strides);
  return m;
}

AttentionProblem problem(const ExternCall& call, const ExternView& q, const ExternView& k, const ExternView& v,
                         const ExternView& mask) {
  AttentionProblem p;
  p.look = [] { look_in_loop(); };
  p.query = operand(q), p.key = operand(k), p.value = operand(v), p.mask = mask_of(mask);
  p.batch = q.sizes[0], p.heads = q.sizes[1], p.kv_heads = k.sizes[1];
  p.queries = q.sizes[2], p.keys = k.sizes[2], p.dim = q.sizes[3], p.value_dim = v.sizes[3];
  p.causal = call.ints[0] != 0;
  const double scale = call.scalars[0];
  p.scale = std::isnan(scale) ? float(1 / std::sqrt(double(p.dim))) : float(scale);
  return p;
}

int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

void zero(const ExternView& v) {
  // Results of empty problems are dense.
  if (v.numel()) std::fill_n(static_cast<float*>(v.data), v.numel(), 0.0f);
}

// Runs body(piece) for all pieces, in runs that are worth a thread.
void share(const ExternCall& call, int64_t pieces, double flops, const std::function<void(int64_t)>& body) {
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) body(i);
  };
  const int64_t grain = std::max<int64_t>(1, int64_t(1e6 / std::max(flops, 1.0)));
  if (!call.parallel || pieces <= grain) return run(0, pieces);
  call.parallel(pieces, grain, run);
}

}  // namespace

bool attention_supports(DType dtype) { return dtype == DType::kFloat32; }

void run_attention(const ExternCall& call) {
  const AttentionKernels& kernels = kernels_for(call.isa);
  AttentionProblem p = problem(call, call.in[0], call.in[1], call.in[2], call.in[3]);
  p.out = operand(call.out[0]);
  p.logsumexp = static_cast<float*>(call.out[1].data);
  const int64_t each = blocks(p.queries, kAttentionQueries), pieces = p.batch * p.heads * each;
  const double flops = 2.0 * double(kAttentionQueries) * double(p.keys) * double(p.dim + p.value_dim);
  share(call, pieces, flops, [&](int64_t i) {
    const int64_t head = i / each;
    kernels.forward(p, head / p.heads, head % p.heads, i % each * kAttentionQueries,
                    attention_scratch(kernels.scratch(p, 0)));
  });
}

// Returns whether each head is a piece. Otherwise the gradient of queries and that of keys and values are computed by
// separate blocks, which share work among more threads than heads but compute scores and their gradients twice: seven
// products for five. Either way each element is the same sum.
bool takes_whole_heads(int64_t heads, int64_t threads) {
  const int64_t rounds = (heads + threads - 1) / threads;
  return 5 * rounds * threads <= 7 * heads;
}

void run_attention_backward(const ExternCall& call) {
  const AttentionKernels& kernels = kernels_for(call.isa);
  AttentionProblem p = problem(call, call.in[1], call.in[2], call.in[3], call.in[6]);
  p.grad = operand(call.in[0]), p.out = operand(call.in[4]);
  p.logsumexp = static_cast<float*>(call.in[5].data);
  if (p.batch * p.queries * p.keys * p.heads == 0) {
    for (const ExternView& v : call.out) zero(v);
    return;
  }
  p.dq = operand(call.out[0]), p.dk = operand(call.out[1]), p.dv = operand(call.out[2]);
  const int64_t heads = p.batch * p.kv_heads, group = p.heads / p.kv_heads;
  const double flops = 5.0 * double(p.queries) * double(p.keys) * double(p.dim + p.value_dim) * double(group);
  const auto range = [&](int64_t head) {
    AttentionRange r;
    r.batch = head / p.kv_heads, r.kv_head = head % p.kv_heads;
    r.first_head = r.kv_head * group, r.last_head = r.first_head + group;
    r.query_end = p.queries, r.key_end = p.keys;
    return r;
  };
  const auto run = [&](const AttentionRange& r) {
    kernels.backward(p, r, attention_scratch(kernels.scratch(p, r.key_end - r.key_begin)));
  };
  const int64_t threads = call.parallel ? std::max(call.threads, 1) : 1;
  if (takes_whole_heads(heads, threads) || flops < 4e6) {
    return share(call, heads, flops, [&](int64_t i) { run(range(i)); });
  }
  const int64_t q_blocks = blocks(p.queries, kAttentionQueries) * group, k_blocks = blocks(p.keys, kAttentionKeys);
  share(call, heads * (q_blocks + k_blocks), flops / double(q_blocks + k_blocks), [&](int64_t i) {
    AttentionRange r = range(i / (q_blocks + k_blocks));
    const int64_t block = i % (q_blocks + k_blocks);
    if (block < q_blocks) {
      r.want_dkv = false;
      r.first_head += block % group, r.last_head = r.first_head + 1;
      r.query_begin = block / group * kAttentionQueries;
      r.query_end = std::min(p.queries, r.query_begin + kAttentionQueries);
    } else {
      r.want_dq = false;
      r.key_begin = (block - q_blocks) * kAttentionKeys;
      r.key_end = std::min(p.keys, r.key_begin + kAttentionKeys);
    }
    run(r);
  });
}

}  // namespace lutra
