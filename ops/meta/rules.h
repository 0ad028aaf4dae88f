// Shared parts of meta rules: broadcasting, promotion, dims, layouts. All of them take symbolic sizes. If the result
// depends on the answer to a question, the answer becomes a guard.
#pragma once
#include <optional>

#include "ops/defs/op.h"

namespace lutra {

using Dims = SmallVec<int64_t, 5>;

// Returns dim counted from 0, for a tensor of ndim dimensions (a 0-dim tensor takes 0 and -1).
int64_t wrap_dim(OpId op, int64_t dim, size_t ndim);
// Returns a 'dim' argument as ascending dims. None means all; so does {}, unless empty_is_none is false. Duplicates are
// an error.
Dims reduced_dims(OpId op, const Value& dims, size_t ndim, bool empty_is_none = true);
// Returns the number of elements that share a channel (dimension 1), of the dimensions from `first` on.
SymInt elements_per_channel(const Sizes& sizes, size_t first = 0);

// Returns sizes without dims, or with ones there.
Sizes reduced_sizes(const Sizes& sizes, const Dims& dims, bool keepdim);

Sizes broadcast(OpId op, const Sizes& a, const Sizes& b);
bool same_sizes(const Sizes& a, const Sizes& b);
// Returns the number of elements by the hints; none if 64 bits cannot count them.
std::optional<int64_t> count_elements(const Sizes& sizes);
// Raises if a condition of an internal op's kernel does not hold, because a graph's text may be wrong. It asks nothing
// of symbols: callers of the op have already met the condition.
void check_internal(OpId op, bool holds, const char* what);
inline bool is_int64(const Tensor& t) { return t->dtype == DType::kInt64; }

// PyTorch's result_type over Operands: tensors with dimensions, then 0-dim tensors, then Scalars. Each of these groups
// only counts if its category is higher than those before.
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

// Returns the broadcast sizes of the tensors among the operands, with the strides that PyTorch's TensorIterator gives
// the result.
ResultSpec pointwise_spec(OpId op, const Args& args, std::initializer_list<size_t> operands, DType dtype);
// Returns the strides of a result of these sizes that is computed elementwise from the operands (broadcast to it).
Sizes pointwise_strides(const std::vector<Tensor>& operands, const Sizes& sizes);

// The rule of rows that have no other: runs the decomposition on FakeTensors.
ResultSpecs meta_decomposed(OpId op, const Args& args);

// Raises if dot does not accept a and b.
void check_dot(OpId op, const Tensor& a, const Tensor& b);

// Raise if scaled_dot_product_attention, or grid_sample, does not accept the arguments.
void check_attention(OpId op, const Args& args);
void check_grid_sample(const Args& args);

ResultSpec contiguous_spec(const Sizes& sizes, DType dtype);
// Describes a new tensor with t's layout if t is dense, else with the order of its strides.
ResultSpec like_spec(const Tensor& t, DType dtype);
ResultSpec view_spec(const Tensor& t, const Sizes& sizes, const Sizes& strides, SymInt offset);

// Returns shape with its -1 replaced so that it has as many elements as input.
Sizes infer_size(OpId op, const Sizes& shape, const Sizes& input);
// Computes the strides of a view of t of these sizes. Returns false if there is no such view.
bool view_strides(const Tensor& t, const Sizes& sizes, Sizes& strides);

}  // namespace lutra
