// What meta rules share: broadcasting, promotion, dims, layouts. Everything takes symbolic sizes; a question whose
// answer the result depends on becomes a guard.
#pragma once
#include <optional>

#include "ops/defs/op.h"

namespace lutra {

using Dims = SmallVec<int64_t, 5>;

// dim counted from 0, for a tensor of ndim dimensions (a 0-dim tensor takes 0 and -1).
int64_t wrap_dim(OpId op, int64_t dim, size_t ndim);
// A 'dim' argument as ascending dims; None and, unless empty_is_none is false, {} mean all. Duplicates are an error.
Dims reduced_dims(OpId op, const Value& dims, size_t ndim, bool empty_is_none = true);
// Sizes without dims, or with ones there.
Sizes reduced_sizes(const Sizes& sizes, const Dims& dims, bool keepdim);

Sizes broadcast(OpId op, const Sizes& a, const Sizes& b);
bool same_sizes(const Sizes& a, const Sizes& b);
// As the sizes are now; none where 64 bits cannot count them.
std::optional<int64_t> count_elements(const Sizes& sizes);
// What an internal op's kernel relies on: nothing is asked of symbols, as those who call it have made it so. A graph's
// text may lie.
void check_internal(OpId op, bool holds, const char* what);
inline bool is_int64(const Tensor& t) { return t->dtype == DType::kInt64; }

// PyTorch's result_type over Operands: tensors with dimensions, then 0-dim tensors, then Scalars, where each only
// counts when its category is higher.
class Promotion {
 public:
  Promotion& add(const Value& operand);
  DType type() const;

 private:
  DType dims_ = DType::kNone, zero_ = DType::kNone, boolean_ = DType::kNone;
  std::vector<Scalar> numbers_;
};
DType result_type(const Args& args, std::initializer_list<size_t> operands);
inline DType to_float(DType t) { return is_float(t) ? t : DType::kFloat32; }

// Broadcast sizes of the tensors among the operands, and the strides that PyTorch's TensorIterator gives the result.
ResultSpec pointwise_spec(OpId op, const Args& args, std::initializer_list<size_t> operands, DType dtype);
// Strides of a result of these sizes computed elementwise from the operands (broadcast to it).
Sizes pointwise_strides(const std::vector<Tensor>& operands, const Sizes& sizes);

// For rows whose decomposition is all that is known of them: it is run on FakeTensors.
ResultSpecs meta_decomposed(OpId op, const Args& args);

// Raises where dot does not take a and b.
void check_dot(OpId op, const Tensor& a, const Tensor& b);

// Raises where scaled_dot_product_attention does not take the arguments.
void check_attention(OpId op, const Args& args);

ResultSpec contiguous_spec(const Sizes& sizes, DType dtype);
// A new tensor laid out as t where t is dense, else in the order of its strides.
ResultSpec like_spec(const Tensor& t, DType dtype);
ResultSpec view_spec(const Tensor& t, const Sizes& sizes, const Sizes& strides, SymInt offset);

// Sizes with one -1 resolved against numel n.
Sizes infer_size(OpId op, const Sizes& shape, const Sizes& input);
// Strides of a view of t of these sizes, or false where there is no such view.
bool view_strides(const Tensor& t, const Sizes& sizes, Sizes& strides);

}  // namespace lutra
