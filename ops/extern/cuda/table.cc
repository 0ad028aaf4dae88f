// The candidates of NVIDIA GPUs. Rows of one op stand best first; the last is the CPU's on copies.
#include "ops/extern/cuda/kernels.h"

namespace lutra::cuda {
namespace {

template <OpId kOp>
bool host_supports(DType dtype) {
  return extern_supports(kOp, dtype, DeviceType::kCPU);
}

#define ON_HOST(op) \
  { OpId::op, "host", host_supports<OpId::op>, nullptr, run_on_host }

const ExternKernel kKernels[] = {
    ON_HOST(mm),
    ON_HOST(bmm),
    ON_HOST(flash_attention),
    ON_HOST(flash_attention_backward),
    ON_HOST(scan_sum),
    ON_HOST(scan_prod),
    ON_HOST(scan_logsumexp),
    ON_HOST(scan_max),
    ON_HOST(scan_min),
    ON_HOST(convolution),
    ON_HOST(convolution_input),
    ON_HOST(convolution_weight),
    ON_HOST(index_put),
    ON_HOST(index_add),
    ON_HOST(index_copy),
    ON_HOST(index_fill),
    ON_HOST(index_reduce),
    ON_HOST(scatter),
    ON_HOST(scatter_add),
    ON_HOST(scatter_reduce),
    ON_HOST(embedding_dense_backward),
    ON_HOST(masked_scatter),
    ON_HOST(masked_assign),
    ON_HOST(masked_gather),
    ON_HOST(sort),
    ON_HOST(topk),
    ON_HOST(searchsorted),
    ON_HOST(isin_tensors),
    ON_HOST(histc),
};

[[maybe_unused]] const bool registered = (set_extern_table(DeviceType::kCUDA, kKernels), true);

}  // namespace
}  // namespace lutra::cuda
