// The candidates of NVIDIA GPUs. The rows of one op are sorted, best first. The last is the CPU's candidate on copies.
#include "ops/extern/cuda/kernels.h"

namespace lutra::cuda {
namespace {

template <OpId kOp>
bool host_supports(DType dtype) {
  return extern_supports(kOp, dtype, DeviceType::kCPU);
}

bool any_dtype(DType) { return true; }

#define ON_HOST(op) \
  { OpId::op, "host", host_supports<OpId::op>, nullptr, run_on_host, 1, true }

const ExternKernel kKernels[] = {
    {OpId::mm, "few_rows", few_rows_supports, few_rows_takes, run_few_rows},
    {OpId::weight_int8pack_mm, "few_rows", few_rows_supports, nullptr, run_weight_mm},
    {OpId::weight_int4pack_mm, "few_rows", few_rows_supports, nullptr, run_weight_mm},
    {OpId::mm, "cublaslt", cublaslt_supports, nullptr, run_cublaslt, kLtWays},
    {OpId::bmm, "cublaslt", cublaslt_supports, nullptr, run_cublaslt, kLtWays},
    {OpId::mm, "tiled", tiled_gemm_supports, nullptr, run_tiled_gemm},
    {OpId::bmm, "tiled", tiled_gemm_supports, nullptr, run_tiled_gemm},
    {OpId::flash_attention, "few_queries", attention_supports, few_queries_take, run_few_queries},
    {OpId::flash_attention, "flash", attention_supports, attention_takes, run_attention},
    {OpId::flash_attention_backward, "flash", attention_supports, attention_takes, run_attention_backward},
    {OpId::embedding_bag_sum, "bags", is_float, nullptr, run_embedding_bag_sum},
    {OpId::embedding_bag_max, "bags", is_float, nullptr, run_embedding_bag_max},
    {OpId::scan_sum, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_prod, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_logsumexp, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_max, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_min, "scan", scan_supports, nullptr, run_scan},
    {OpId::convolution, "few_channels", few_channels_supports, few_channels_takes, run_few_channels},
    {OpId::convolution_weight, "few_channels", few_channels_supports, few_channels_takes, run_few_channels},
    {OpId::convolution, "depthwise", depthwise_supports, depthwise_takes, run_depthwise},
    {OpId::convolution_input, "depthwise", depthwise_supports, depthwise_takes, run_depthwise},
    {OpId::convolution_weight, "depthwise", depthwise_supports, depthwise_takes, run_depthwise},
    {OpId::convolution_weight, "weight_ranges", weight_ranges_supports, weight_ranges_takes, run_weight_ranges},
    {OpId::convolution, "cudnn", cudnn_supports, cudnn_takes, run_cudnn_convolution},
    {OpId::convolution_input, "cudnn", cudnn_supports, cudnn_takes, run_cudnn_convolution},
    {OpId::convolution_weight, "cudnn", cudnn_supports, cudnn_takes, run_cudnn_convolution},
    {OpId::convolution, "direct", direct_convolution_supports, nullptr, run_direct_convolution, 1, true},
    {OpId::convolution_input, "direct", direct_convolution_supports, nullptr, run_direct_convolution, 1, true},
    {OpId::convolution_weight, "direct", direct_convolution_supports, nullptr, run_direct_convolution, 1, true},
#define ROW(op, kernel) {OpId::op, #kernel, any_dtype, nullptr, run_##kernel},
#include "ops/extern/every_dtype.def"
#undef ROW
    ON_HOST(mm),
    ON_HOST(bmm),
    ON_HOST(flash_attention),
    ON_HOST(flash_attention_backward),
    ON_HOST(embedding_bag_sum),
    ON_HOST(embedding_bag_max),
    ON_HOST(scan_sum),
    ON_HOST(scan_prod),
    ON_HOST(scan_logsumexp),
    ON_HOST(scan_max),
    ON_HOST(scan_min),
    ON_HOST(convolution),
    ON_HOST(convolution_input),
    ON_HOST(convolution_weight),
    ON_HOST(ctc_nll),
    ON_HOST(ctc_nll_backward),
#define ROW(op, kernel) ON_HOST(op),
#include "ops/extern/every_dtype.def"
#undef ROW
};

[[maybe_unused]] const bool registered = (set_extern_table(DeviceType::kCUDA, kKernels), true);

}  // namespace
}  // namespace lutra::cuda
