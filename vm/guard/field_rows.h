// Fields of one table that a guard program loads and checks one after the other: a list, which a loop of the
// processor's goes over. Code of its own for each would be many times as large as what it compares.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "vm/guard/native_run.h"

namespace lutra {

// What is_plainly asks of a leaf whose sizes and strides never change, side by side. Tensors that are alike share one.
struct PlainTensor {
  const TensorSpec* spec = nullptr;
  std::vector<int64_t> layout;  // sizes, then strides
  uint32_t rank = 0;
  DType dtype = DType::kFloat32;
  bool requires_grad = false;
  bool leaf = false;  // false: matches decides
  Device device;
};

struct FieldRow {
  enum Check : uint8_t { kBits, kTensor, kNone, kTag, kObject };
  uint64_t key = 0;     // a string
  uint64_t wanted = 0;  // kBits: the value; kTag: its tag; kObject: which weak object; kTensor: the one that was seen
  uint32_t node = 0;    // where the table had the key last, in bytes
  int32_t reg = 0;      // that is loaded
  int32_t input = 0;    // kTensor: which tensor input the value becomes
  int32_t step = 0;     // of the check
  Check check = kNone;
  // kTensor, and what was seen of it.
  const PlainTensor* plain = nullptr;
  const void* tensor = nullptr;
  InputView view;
};

struct FieldRows {
  int32_t table = 0;     // its register
  uint32_t most = 0;     // no row's node is behind it
  uint64_t changes = 0;  // watched_changes before all tensors were looked at
  std::vector<FieldRow> rows;
  std::vector<std::unique_ptr<PlainTensor>> plain;
  bool loads(int32_t input) const;
};

// The rows that begin at step `at`, whose load writes register `reg`; moves `at` behind them. None where they are too
// few: then nothing has moved.
FieldRows take_field_rows(const GuardProgram& program, const mirror::Tab* constants, size_t& at, int& reg);
// -1: all hold. Else as NativeGuards::run.
int64_t check_field_rows(GuardRun* run, FieldRows* rows) noexcept;

}  // namespace lutra
