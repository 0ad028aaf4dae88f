// The candidates of the CPU. Rows of one op stand best first.
#include "ops/extern/cpu/kernels.h"

namespace lutra {
namespace {

bool any_dtype(DType) { return true; }

const ExternKernel kKernels[] = {
    {OpId::mm, "onednn", gemm_supports, nullptr, run_gemm},
    {OpId::bmm, "onednn", gemm_supports, nullptr, run_gemm},
    {OpId::mm, "onednn by float32", gemm_half_supports, nullptr, run_gemm_half},
    {OpId::bmm, "onednn by float32", gemm_half_supports, nullptr, run_gemm_half},
    {OpId::flash_attention, "flash", attention_supports, nullptr, run_attention},
    {OpId::flash_attention_backward, "flash", attention_supports, nullptr, run_attention_backward},
    {OpId::scan_sum, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_prod, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_logsumexp, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_max, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_min, "scan", scan_supports, nullptr, run_scan},
    {OpId::convolution, "direct", conv_supports, nullptr, run_convolution},
    {OpId::convolution_input, "direct", conv_supports, nullptr, run_convolution_input},
    {OpId::convolution_weight, "direct", conv_supports, nullptr, run_convolution_weight},
    {OpId::index_put, "index_put", any_dtype, nullptr, run_index_put},
    {OpId::index_add, "index_add", any_dtype, nullptr, run_index_add},
    {OpId::index_copy, "index_copy", any_dtype, nullptr, run_index_copy},
    {OpId::index_fill, "index_fill", any_dtype, nullptr, run_index_fill},
    {OpId::index_reduce, "index_reduce", any_dtype, nullptr, run_index_reduce},
    {OpId::scatter, "scatter", any_dtype, nullptr, run_scatter},
    {OpId::scatter_add, "scatter_add", any_dtype, nullptr, run_scatter_add},
    {OpId::scatter_reduce, "scatter_reduce", any_dtype, nullptr, run_scatter_reduce},
    {OpId::embedding_dense_backward, "embedding_backward", any_dtype, nullptr, run_embedding_backward},
    {OpId::masked_scatter, "masked_scatter", any_dtype, nullptr, run_masked_scatter},
    {OpId::masked_assign, "masked_scatter", any_dtype, nullptr, run_masked_scatter},
    {OpId::masked_gather, "masked_gather", any_dtype, nullptr, run_masked_gather},
    {OpId::sort, "sort", any_dtype, nullptr, run_sort},
    {OpId::topk, "topk", any_dtype, nullptr, run_topk},
    {OpId::searchsorted, "searchsorted", any_dtype, nullptr, run_searchsorted},
    {OpId::isin_tensors, "isin", any_dtype, nullptr, run_isin},
    {OpId::histc, "histc", any_dtype, nullptr, run_histc},
};

[[maybe_unused]] const bool registered = (set_extern_table(DeviceType::kCPU, kKernels), true);

}  // namespace
}  // namespace lutra
