// NumPy's .npy format: the header and the elements of one array.
#pragma once
#include "ops/core/tensor.h"
#include "ops/io/file.h"

namespace lutra {

// Reads versions 1 to 3, C and Fortran order, either byte order. Reads all that is left of the source, or fails.
Tensor read_npy(ByteSource& in);
// Returns the header that save_npy writes. Throws for dtypes that NumPy does not have.
std::string npy_header(const Tensor& t);
// Returns the bytes of a contiguous tensor.
inline size_t byte_count(const Tensor& t) { return size_t(t->numel().hint) * size_of(t->dtype); }

Tensor load_npy(const std::string& path);
void save_npy(const std::string& path, const Tensor& contiguous);

// Makes a tensor of these sizes, whose elements must take exactly `bytes` bytes. Otherwise it raises in.damaged, before
// it allocates.
Tensor make_checked(const ByteSource& in, const std::vector<uint64_t>& sizes, DType dtype, uint64_t bytes,
                    bool fortran = false);
// Reads a dense tensor's elements. Bools become 0 or 1.
void read_elements(ByteSource& in, const Tensor& t);

}  // namespace lutra
