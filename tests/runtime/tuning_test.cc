// Tests which candidate of a library call runs, on a device whose candidates are known to be slow, fast or broken.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "jit/device/backend.h"
#include "jit/runtime/flat_plan.h"
#include "jit/runtime/runner.h"
#include "jit/runtime/tuning.h"
#include "ops/core/error.h"
#include "ops/core/settings.h"

namespace lutra {
namespace {

constexpr Device kTimed{DeviceType(3), 0};
int calls_of[5];  // by candidate

class TimedBackend final : public Backend {
 public:
  TimedBackend() : Backend(numerics::kCpuReductions, {}, {}) {}
  Machine machine(Device) const override { return {}; }
  std::shared_ptr<Code> compile(const loop::Kernel&, const KernelTarget&, bool) const override { return nullptr; }
  std::string kernel_key(const loop::Kernel&, const KernelTarget&) const override { return ""; }
  std::unique_ptr<Runner> make_runner(const FlatPlan&) const override { return nullptr; }
};
const TimedBackend backend;

bool any_dtype(DType) { return true; }
void add_one(const ExternCall& call) { *static_cast<float*>(call.out[0].data) = 1; }
void run_slow(const ExternCall& call) {
  calls_of[0]++;
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  add_one(call);
}
void run_broken(const ExternCall& call) {
  calls_of[1]++;
  *static_cast<float*>(call.out[0].data) = -1;
  fail("mm: a candidate that fails");
}
// Its second way is the fast one.
void run_ways(const ExternCall& call) {
  calls_of[call.way == 1 ? 2 : 3]++;
  if (call.way != 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  add_one(call);
}
void run_stand_in(const ExternCall& call) { calls_of[4]++, add_one(call); }

constexpr ExternKernel kKernels[] = {{OpId::mm, "slow", any_dtype, nullptr, run_slow},
                                     {OpId::mm, "broken", any_dtype, nullptr, run_broken},
                                     {OpId::mm, "ways", any_dtype, nullptr, run_ways, 3},
                                     {OpId::mm, "stand-in", any_dtype, nullptr, run_stand_in, 1, true},
                                     {OpId::bmm, "stand-in", any_dtype, nullptr, run_stand_in, 1, true}};
[[maybe_unused]] const bool registered = (set_extern_table(kTimed.type, kKernels), true);

// A product of so many rows; each number of rows is a call of its own.
struct Timed {
  float data[2] = {};
  ExternView in[2], out;
  OpId op;
  explicit Timed(int64_t rows, OpId op = OpId::mm) : op(op) {
    for (ExternView* v : {&in[0], &in[1], &out}) v->data = v == &out ? &data[1] : data, v->dim = 1, v->sizes[0] = rows;
    std::fill(std::begin(calls_of), std::end(calls_of), 0);
  }
  ExternCall call() const {
    ExternCall c;
    c.op = op, c.in = in, c.out = {&out, 1}, c.device = kTimed;
    return c;
  }
  LibraryChoice run(Tuning tuning) {
    data[1] = 0;
    const LibraryChoice choice = run_library(backend, call(), tuning);
    CHECK(data[1] == 1);
    return choice;
  }
};

struct OwnFolder {
  Settings before = settings();
  std::string path;
  OwnFolder() {
    char name[] = "/tmp/lutra-tuning-XXXXXX";
    path = mkdtemp(name);
    settings().cache_directory = path;
  }
  ~OwnFolder() {
    settings() = before;
    std::filesystem::remove_all(path);
  }
};

}  // namespace

TEST_CASE("runs in flight find the fastest candidate", "[runtime][tuning]") {
  const OwnFolder folder;
  settings().cache = CacheMode::kOff;
  Timed timed(10);
  CHECK(extern_options(timed.call()).size() == 5);
  CHECK(std::string(timed.run(Tuning::kOff).candidate) == "slow");
  CHECK(timed.run(Tuning::kSettled).why == LibraryChoice::kMeasuring);
  CHECK(calls_of[0] == 2);
  LibraryChoice choice;
  int runs = 0;
  do choice = timed.run(Tuning::kInFlight);
  while (choice.why == LibraryChoice::kMeasuring && ++runs < 100);
  CHECK(std::string(choice.candidate) == "ways");
  CHECK(choice.way == 1);
  CHECK(choice.gain > 2);
  CHECK(choice.options == 5);
  CHECK(choice.text().find("the fastest of 5") == 0);
  CHECK(calls_of[1] == 1);          // what fails is not tried again
  CHECK(calls_of[0] <= 2 + 3 + 1);  // nor is what is hopeless; once for what failed
  CHECK(calls_of[4] == 0);
  const int fast = calls_of[2];
  CHECK(timed.run(Tuning::kInFlight).way == 1);
  CHECK(timed.run(Tuning::kSettled).way == 1);
  CHECK(calls_of[2] == fast + 2);
  CHECK(std::string(timed.run(Tuning::kOff).candidate) == "slow");  // it was not tuned for all
  CHECK_FALSE(std::filesystem::exists(folder.path + "/tuning.txt"));
}

TEST_CASE("a call that is tuned at once is tuned for all", "[runtime][tuning]") {
  const OwnFolder folder;
  settings().cache = CacheMode::kOff;
  Timed timed(11);
  CHECK(timed.run(Tuning::kAtOnce).way == 1);
  CHECK(timed.run(Tuning::kOff).way == 1);
  CHECK(timed.run(Tuning::kOff).why == LibraryChoice::kFastest);
  Timed other(12), alone(13, OpId::bmm);
  CHECK(other.run(Tuning::kOff).why == LibraryChoice::kFirst);
  CHECK(std::string(alone.run(Tuning::kAtOnce).candidate) == "stand-in");
  const std::vector<TunedCall> calls = stop_tuning();
  CHECK(calls.size() == 2);
  CHECK(stop_tuning().empty());
  CHECK_THROWS_AS(save_tuning(), Error);
  settings().cache = CacheMode::kOn;
  const std::string path = save_tuning();
  std::ifstream file(path);
  std::string line, text;
  while (std::getline(file, line)) text += line + "\n";
  CHECK(text.find(" all mm ways 1 0 ") != std::string::npos);
  CHECK(text.find(" all bmm stand-in 0 0 1 1 bmm float32[13]") != std::string::npos);
}

TEST_CASE("a call that writes its operands is not made twice", "[runtime][tuning]") {
  const OwnFolder folder;
  settings().cache = CacheMode::kOff;
  Timed timed(14);
  timed.in[0].data = timed.out.data;
  timed.run(Tuning::kAtOnce);
  CHECK(calls_of[0] == 1);
  stop_tuning();
}

}  // namespace lutra
