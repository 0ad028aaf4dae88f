// NumPy's .npy: the header and the elements of one array.
#pragma once
#include "ops/core/tensor.h"
#include "ops/io/file.h"

namespace lutra {

// Versions 1 to 3, C and Fortran order, either byte order. Reads all that is left of the source, or fails.
Tensor read_npy(ByteSource& in);
// Header and length of what write_npy writes; throws for dtypes that NumPy does not have.
std::string npy_header(const Tensor& t);
// The bytes of a contiguous tensor.
inline size_t byte_count(const Tensor& t) { return size_t(t->numel().hint) * size_of(t->dtype); }

Tensor load_npy(const std::string& path);
void save_npy(const std::string& path, const Tensor& contiguous);

// A tensor of these sizes whose elements take exactly `bytes` bytes, or an Error by in.damaged; nothing is allocated
// for sizes that do not fit.
Tensor make_checked(const ByteSource& in, const std::vector<uint64_t>& sizes, DType dtype, uint64_t bytes,
                    bool fortran = false);
// Reads a dense tensor's elements; bools become 0 or 1.
void read_elements(ByteSource& in, const Tensor& t);

}  // namespace lutra
