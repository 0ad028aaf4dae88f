// Declares the candidates of NVIDIA GPUs. table.cc maps ops to them.
#pragma once
#include "ops/extern/extern.h"

namespace lutra::cuda {

// host.cc: runs the CPU's candidate on copies of the operands. It waits for the GPU, so it cannot be recorded.
void run_on_host(const ExternCall& call);

// scatter.cc, masked.cc, sort.cc, search.cc: every dtype
#define ROW(op, kernel) void run_##kernel(const ExternCall& call);
#include "ops/extern/every_dtype.def"
#undef ROW
// bags.cc
void run_embedding_bag_sum(const ExternCall& call);
void run_embedding_bag_max(const ExternCall& call);
// scan.cc
bool scan_supports(DType dtype);
void run_scan(const ExternCall& call);
// gemm.cc: with cuBLASLt, and without it
inline constexpr int kLtWays = 4;  // the number of kernels to choose from, by the library's rank
bool cublaslt_supports(DType dtype);
void run_cublaslt(const ExternCall& call);
bool tiled_gemm_supports(DType dtype);
void run_tiled_gemm(const ExternCall& call);
// few_rows.cc: products of few rows, and products with few-bit weights
bool few_rows_supports(DType dtype);
bool few_rows_takes(const ExternCall& call);
void run_few_rows(const ExternCall& call);
void run_weight_mm(const ExternCall& call);
// conv.cc: with cuDNN, and without it
bool cudnn_supports(DType dtype);
bool cudnn_takes(const ExternCall& call);
void run_cudnn_convolution(const ExternCall& call);
bool direct_convolution_supports(DType dtype);
void run_direct_convolution(const ExternCall& call);
// conv_few.cc: few input channels
bool few_channels_supports(DType dtype);
bool few_channels_takes(const ExternCall& call);
void run_few_channels(const ExternCall& call);
// conv_depthwise.cc: as many groups as channels
bool depthwise_supports(DType dtype);
bool depthwise_takes(const ExternCall& call);
void run_depthwise(const ExternCall& call);
// conv_weight.cc: gradients of small weights
bool weight_ranges_supports(DType dtype);
bool weight_ranges_takes(const ExternCall& call);
void run_weight_ranges(const ExternCall& call);
// attention.cc
bool attention_supports(DType dtype);
bool attention_takes(const ExternCall& call);
void run_attention(const ExternCall& call);
// attention_few.cc: few queries
bool few_queries_take(const ExternCall& call);
void run_few_queries(const ExternCall& call);
void run_attention_backward(const ExternCall& call);

}  // namespace lutra::cuda
