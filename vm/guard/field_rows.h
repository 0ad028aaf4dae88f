// Fields of one table that a guard program loads and checks one after the other. They are a list over which a compiled
// loop runs. Separate machine code for each field would be many times as large as the data that it compares.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "vm/guard/native_run.h"

namespace lutra {

// The data that is_plainly compares for a leaf with constant sizes and strides. Equal tensors share one.
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
  uint64_t wanted = 0;  // kBits: the value; kTag: its tag; kObject: index of the weak object; kTensor: the last value
  uint32_t node = 0;    // where the table last had the key, in bytes
  int32_t reg = 0;      // the register that is loaded
  int32_t input = 0;    // kTensor: the tensor input that the value becomes
  int32_t step = 0;     // the check's step
  Check check = kNone;
  // For kTensor: the expected tensor, and the last one that matched.
  const PlainTensor* plain = nullptr;
  const void* tensor = nullptr;
  InputView view;
};

struct FieldRows {
  int32_t table = 0;     // its register
  uint32_t most = 0;     // maximum of the rows' nodes
  uint64_t changes = 0;  // watched_changes when all tensors were last checked
  std::vector<FieldRow> rows;
  std::vector<std::unique_ptr<PlainTensor>> plain;
  bool loads(int32_t input) const;
};

// Returns the rows from step `at` on, whose load writes register `reg`, and moves `at` and `reg` behind them. If there
// are too few, returns none and moves nothing.
FieldRows take_field_rows(const GuardProgram& program, const mirror::Tab* constants, size_t& at, int& reg);
// Returns -1 if all rows hold, otherwise the same as NativeGuards::run.
int64_t check_field_rows(GuardRun* run, FieldRows* rows) noexcept;

}  // namespace lutra
