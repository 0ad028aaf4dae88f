// The candidates of NVIDIA GPUs, one declaration each; table.cc says which op they serve.
#pragma once
#include "ops/extern/extern.h"

namespace lutra::cuda {

// host.cc: the CPU's candidate on copies of the operands. Waits for the GPU, so it cannot be recorded.
void run_on_host(const ExternCall& call);

// scatter.cc, masked.cc, sort.cc, search.cc: every dtype
void run_index_put(const ExternCall& call);
void run_index_add(const ExternCall& call);
void run_index_copy(const ExternCall& call);
void run_index_fill(const ExternCall& call);
void run_index_reduce(const ExternCall& call);
void run_scatter(const ExternCall& call);
void run_scatter_add(const ExternCall& call);
void run_scatter_reduce(const ExternCall& call);
void run_embedding_backward(const ExternCall& call);
void run_masked_scatter(const ExternCall& call);
void run_masked_gather(const ExternCall& call);
void run_sort(const ExternCall& call);
void run_topk(const ExternCall& call);
void run_searchsorted(const ExternCall& call);
void run_isin(const ExternCall& call);
void run_histc(const ExternCall& call);
// scan.cc
bool scan_supports(DType dtype);
void run_scan(const ExternCall& call);
// gemm.cc: by cuBLASLt, and without it
bool cublaslt_supports(DType dtype);
void run_cublaslt(const ExternCall& call);
bool tiled_gemm_supports(DType dtype);
void run_tiled_gemm(const ExternCall& call);
// conv.cc: by cuDNN, and without it
bool cudnn_supports(DType dtype);
bool cudnn_takes(const ExternCall& call);
void run_cudnn_convolution(const ExternCall& call);
bool direct_convolution_supports(DType dtype);
void run_direct_convolution(const ExternCall& call);
// conv_few.cc: of few input channels
bool few_channels_supports(DType dtype);
bool few_channels_takes(const ExternCall& call);
void run_few_channels(const ExternCall& call);
// conv_depthwise.cc: of each channel by itself
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
void run_attention_backward(const ExternCall& call);

}  // namespace lutra::cuda
