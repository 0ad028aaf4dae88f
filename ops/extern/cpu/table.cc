// The CPU's candidates. The rows of one op are sorted, best first.
#include "ops/extern/cpu/kernels.h"

namespace lutra {
namespace {

bool any_dtype(DType) { return true; }

const ExternKernel kKernels[] = {
    {OpId::mm, "tiles", gemm_supports, nullptr, run_gemm},
    {OpId::bmm, "tiles", gemm_supports, nullptr, run_gemm},
    {OpId::weight_int8pack_mm, "rows", weight_mm_supports, nullptr, run_weight_mm},
    {OpId::weight_int4pack_mm, "rows", weight_mm_supports, nullptr, run_weight_mm},
    {OpId::flash_attention, "flash", attention_supports, nullptr, run_attention},
    {OpId::flash_attention_backward, "flash", attention_supports, nullptr, run_attention_backward},
    {OpId::embedding_bag_sum, "bags", is_float, nullptr, run_embedding_bag_sum},
    {OpId::embedding_bag_max, "bags", is_float, nullptr, run_embedding_bag_max},
    {OpId::scan_sum, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_prod, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_logsumexp, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_max, "scan", scan_supports, nullptr, run_scan},
    {OpId::scan_min, "scan", scan_supports, nullptr, run_scan},
    {OpId::convolution, "direct", conv_supports, nullptr, run_convolution},
    {OpId::convolution_input, "direct", conv_supports, nullptr, run_convolution_input},
    {OpId::convolution_weight, "direct", conv_supports, nullptr, run_convolution_weight},
    {OpId::ctc_nll, "ctc", ctc_supports, nullptr, run_ctc_nll},
    {OpId::ctc_nll_backward, "ctc", ctc_supports, nullptr, run_ctc_nll_backward},
    {OpId::host_op, "host", any_dtype, nullptr, run_host_op, 1, false, true},
    {OpId::host_op_backward, "host", any_dtype, nullptr, run_host_op, 1, false, true},
#define ROW(op, kernel) {OpId::op, #kernel, any_dtype, nullptr, run_##kernel},
#include "ops/extern/every_dtype.def"
#undef ROW
};

[[maybe_unused]] const bool registered = (set_extern_table(DeviceType::kCPU, kKernels, true), true);

}  // namespace
}  // namespace lutra
