// The kernel that sets the condition of a conditional node, where a condition is a number of this process.
#include <catch2/catch.hpp>

#include "ops/core/element_types.h"
#include "ops/defs/element.h"
#include "ops/extern/cuda/condition.h"
#include "tests/cuda_extern/machine.h"

namespace lutra::cuda {

TEST_CASE("cuda extern: the condition of a branch, and of a loop that is to stop") {
  const HostMachine machine;
  for (const DType dtype : {DType::kBool, DType::kUInt8, DType::kInt64, DType::kFloat16, DType::kBFloat16,
                            DType::kFloat32, DType::kFloat64}) {
    for (const double value : {0.0, 1.0, -0.0, -2.0}) {
      alignas(8) char flag[8];
      store_element(flag, dtype, Scalar(dtype == DType::kBool || dtype == DType::kUInt8 ? value * value : value));
      for (const bool holds : {true, false}) {
        for (const int32_t stop : {0, 1}) {
          unsigned condition = 7;
          set_condition(Device(), reinterpret_cast<uintptr_t>(&condition), flag, dtype, holds, &stop);
          CHECK(condition == unsigned((value != 0) == holds && !stop));
          set_condition(Device(), reinterpret_cast<uintptr_t>(&condition), flag, dtype, holds, nullptr);
          CHECK(condition == unsigned((value != 0) == holds));
        }
      }
    }
  }
}

}  // namespace lutra::cuda
