// Recorded runs of a plan (record.cc).
#pragma once
#include <algorithm>
#include <mutex>

#include "jit/device/cuda/runner.h"
#include "ops/cuda/driver.h"
#include "ops/extern/cuda/recording.h"

namespace lutra {

// The arguments of library calls, in words, with the buffer that each word points into; -1: none.
struct LibraryKey {
  std::vector<uint64_t> words;
  std::vector<int32_t> buffers;
  void add(uint64_t word, int32_t buffer = -1) { words.push_back(word), buffers.push_back(buffer); }
};

struct CudaRunner::Recording {
  struct Kernel {
    cuda::GraphNode node = nullptr;  // null if it was not launched
    std::vector<uint64_t> words;     // its recorded block
  };
  Recording() = default;
  Recording(const Recording&) = delete;
  ~Recording() {
    if (exec) cuda::driver()->graph_exec_destroy(exec);
    if (graph) cuda::driver()->graph_destroy(graph);
  }
  // A result that libraries write or read. A storage that the caller gave is not kept: the caller must give it, or
  // another one in the same place, again.
  struct Result {
    int32_t buffer;
    Ref<Storage> own;
    const void* data;
    size_t bytes;
  };
  // Returns true if nobody holds the results except the caller that gives them up.
  bool is_free(const GpuRun& c) const {
    return std::all_of(results.begin(), results.end(), [&](const Result& r) {
      const Storage* donor = c.donor(r.buffer);
      const Storage* s = r.own ? r.own.get() : donor;
      if (!s || s->freed || s->data != r.data || s->nbytes != r.bytes) return false;
      return s->refs.load(std::memory_order_acquire) == (r.own && donor == s ? 2 : 1);
    });
  }
  Ref<Storage> result(int32_t buffer) const {
    for (const Result& r : results) {
      if (r.buffer == buffer && !copies) return r.own;
    }
    return nullptr;
  }

  LibraryKey key;
  std::vector<Result> results;
  bool keeps_results = false;      // it also keeps given storages
  bool copies = false;             // runs get copies of the results
  std::vector<Ref<Storage>> kept;  // taken during recording
  std::vector<Kernel> kernels;     // by launch
  size_t nodes = 0;
  bool decides = false;  // has conditional nodes
  cuda::GraphHandle graph = nullptr;
  cuda::GraphExec exec = nullptr;
};

// Records runs of a runner's plan, and replays them. One run at a time uses it; the others go launch by launch.
class CudaRunner::Recorder {
 public:
  // Returns null if recording gains nothing.
  static std::unique_ptr<Recorder> make(const CudaRunner& runner);
  explicit Recorder(const CudaRunner& runner);
  // Returns the run's recording: one that serves it, or a new one to be filled. Null: the run goes launch by launch.
  Recording* pick(GpuRun& c, const std::vector<Tensor>& inputs);
  // Fills the recording if it is new, and launches it.
  void launch(GpuRun& c, Recording& r);

 private:
  void give_up(const std::string& why);
  void bring_moving(GpuRun& c, const std::vector<Tensor>& inputs);
  bool find_moving();
  void make_key(const GpuRun& c);
  void place_results(GpuRun& c, const Recording& r, bool own) const;
  void copy_results(const GpuRun& c, const Recording& r) const;
  bool record(GpuRun& c, Recording& r);
  bool find_nodes(const GpuRun& c, Recording& r) const;
  void update_kernels(const GpuRun& c, Recording& r) const;

  const CudaRunner& runner_;
  const Plan& plan_;
  std::mutex mutex_;  // held by the run that uses a recording
  int runs_ = 0, tries_ = 0;
  bool given_up_ = false, has_libraries_ = false;
  std::vector<bool> library_results_;                     // by buffer
  std::vector<std::unique_ptr<Recording>> all_;           // most recently used last
  std::vector<std::pair<int32_t, Ref<Storage>>> moving_;  // inputs by buffer, with the memory that they are copied to
  LibraryKey key_;                                        // of the present run
};

}  // namespace lutra
