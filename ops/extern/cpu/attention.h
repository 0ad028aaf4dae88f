// Attention without a matrix of scores in memory: the kernels' arguments, and one set of kernels for each instruction
// set (attention_tile.h is compiled once for each).
#pragma once
#include <cstdint>

namespace lutra {

// Has four dimensions (batch, head, position, feature). Strides are in elements.
struct AttentionOperand {
  float* data = nullptr;
  int64_t strides[4] = {};
  float* at(int64_t batch, int64_t head, int64_t row = 0) const {
    return data + batch * strides[0] + head * strides[1] + row * strides[2];
  }
};

struct AttentionMask {
  const void* data = nullptr;  // null: no mask
  bool is_bool = false;        // bytes, 0 where a key is hidden; else floats to be added
  int64_t strides[4] = {};     // by batch, head, query, key; 0 where it is broadcast
};

// Invariant: query, value and the results that the kernels write (out, dq, dk, dv) have features of unit stride.
struct AttentionProblem {
  int64_t batch = 0, heads = 0, kv_heads = 0;  // heads is a multiple of kv_heads
  int64_t queries = 0, keys = 0, dim = 0, value_dim = 0;
  float scale = 1;
  bool causal = false;
  AttentionOperand query, key, value, out;
  float* logsumexp = nullptr;  // (batch, heads, queries); +inf for a query that sees no key
  AttentionMask mask;
  AttentionOperand grad, dq, dk, dv;  // backward
  void (*look)() = nullptr;           // called between blocks of keys; ends the loop if it must stop
};

// A part of the backward of the heads that share one key head: these queries against these keys.
struct AttentionRange {
  int64_t batch = 0, kv_head = 0, first_head = 0, last_head = 0;
  int64_t query_begin = 0, query_end = 0, key_begin = 0, key_end = 0;
  bool want_dq = true, want_dkv = true;
};

constexpr int64_t kAttentionQueries = 32;  // queries in a block
constexpr int64_t kAttentionKeys = 128;    // keys in a block

struct AttentionKernels {
  // Returns the floats of scratch memory that the kernels need (aligned to 64 bytes).
  int64_t (*scratch)(const AttentionProblem& p, int64_t keys);
  // Computes one block of queries of one head.
  void (*forward)(const AttentionProblem& p, int64_t batch, int64_t head, int64_t query, float* scratch);
  void (*backward)(const AttentionProblem& p, const AttentionRange& r, float* scratch);
};
extern const AttentionKernels kAttentionAvx512, kAttentionAvx2, kAttentionBase;

}  // namespace lutra
