// Declares the CPU's library kernels. table.cc maps ops to them.
#pragma once
#include "ops/extern/extern.h"

namespace lutra {

bool gemm_supports(DType dtype);
void run_gemm(const ExternCall& call);
bool weight_mm_supports(DType dtype);
void run_weight_mm(const ExternCall& call);
bool scan_supports(DType dtype);
void run_scan(const ExternCall& call);

// bags.cc
void run_embedding_bag_sum(const ExternCall& call);
void run_embedding_bag_max(const ExternCall& call);
bool ctc_supports(DType dtype);
void run_ctc_nll(const ExternCall& call);
void run_ctc_nll_backward(const ExternCall& call);

bool attention_supports(DType dtype);
void run_attention(const ExternCall& call);
void run_attention_backward(const ExternCall& call);
bool conv_supports(DType dtype);
void run_convolution(const ExternCall& call);
void run_convolution_input(const ExternCall& call);
void run_convolution_weight(const ExternCall& call);

void run_host_op(const ExternCall& call);

// scatter.cc, masked.cc, sort.cc, search.cc: every dtype
#define ROW(op, kernel) void run_##kernel(const ExternCall& call);
#include "ops/extern/every_dtype.def"
#undef ROW

}  // namespace lutra
