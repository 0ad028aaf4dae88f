// See tuning.h. The table is a text of a line a call:
//   key, for whom, op, candidate, way, threads, gain, what the call is
// The key is a digest of all that the call's speed may depend on, the machine among it. A table of another build of
// Lutra is not read: its candidates may be others.
#include "jit/runtime/tuning.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "jit/background/background.h"
#include "jit/runtime/config.h"
#include "jit/runtime/profile.h"
#include "ops/core/build_id.h"
#include "ops/core/digest.h"
#include "ops/core/disk_cache.h"
#include "ops/core/error.h"
#include "ops/core/small_vec.h"
#include "ops/extern/precision.h"

namespace lutra {
namespace {

namespace fs = std::filesystem;

constexpr int kRuns = 5, kLongRuns = 3;  // of an option; the first run is not counted
constexpr double kLong = 0.03;           // seconds
// An option that is this many times as slow as the fastest is not tried again: after its first counted run, and after a
// later one.
constexpr double kHopeless[] = {4, 1.5};
// A choice must be faster by this factor and by so many seconds to replace another.
constexpr double kWorth = 1.03, kNoise = 1e-6;
constexpr size_t kMaxCalls = 4096;

struct Option {
  ExternOption how;
  int runs = 0;
  double seconds = INFINITY;  // the least
};

struct Trial {
  std::vector<Option> options;  // the first one is the choice without tuning; empty if the file had the result
  bool settled = false, for_all = false, found_now = false;
  ExternOption best;
  double gain = 1;
  int count = 0;  // number of options
  OpId op = OpId::kCount;
  std::string candidate, text;

  Option* next() {
    Option* least = nullptr;
    const double best_seconds = fastest().seconds;
    for (Option& o : options) {
      const bool hopeless = o.seconds < INFINITY && o.seconds > kHopeless[o.runs > 2] * best_seconds;
      const bool done = o.runs >= (best_seconds > kLong && best_seconds < INFINITY ? kLongRuns : kRuns);
      if (!hopeless && !done && (!least || o.runs < least->runs)) least = &o;
    }
    return least;
  }
  const Option& fastest() const {
    return *std::min_element(options.begin(), options.end(),
                             [](const Option& a, const Option& b) { return a.seconds < b.seconds; });
  }
  void settle(const ExternCall& call) {
    const Option& found = fastest();
    gain = options[0].seconds / found.seconds;
    if (!(gain >= kWorth && options[0].seconds - found.seconds >= kNoise)) gain = 1;
    best = gain > 1 ? found.how : options[0].how;
    candidate = extern_candidate(call, best);
    settled = true;
  }
};

struct Table {
  std::mutex mutex;
  std::unordered_map<uint64_t, Trial> trials;  // never erased: references stay
  std::atomic<bool> serves_all{false};         // some trial is for all calls, even untuned ones
  std::atomic<bool> unsaved{false};
  std::string path;  // where results are saved
  const std::string first_line = str("lutra-tuning 1 ", build_id());
};

Table& table() {
  static auto* all = new Table;  // background threads may outlive static objects
  return *all;
}

// Returns a digest of the machine, for keys.
uint64_t machine_of(const Backend& backend, const ExternCall& call) {
  static std::mutex mutex;
  static auto* known = new std::map<std::tuple<DeviceType, int, ExternIsa>, uint64_t>;
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = known->try_emplace({call.device.type, int(call.device.index), call.isa}, 0);
  if (is_new) at->second = checksum(str(backend.target_key(call.device, current_isa()), " ", int(call.isa)));
  return at->second;
}

uint64_t key_of(const Backend& backend, const ExternCall& call) {
  SmallVec<uint64_t, 96> words;
  const auto add = [&](auto x) { words.push_back(uint64_t(x)); };
  add(call.op), add(extern_goes_by_threads(call.device.type) ? call.threads : 0), add(machine_of(backend, call));
  add(uint64_t(matmul_precision()) * 2 + convolution_tf32());
  for (const auto views : {call.in, call.out}) {
    add(views.size());
    for (const ExternView& v : views) {
      // A GPU's library also chooses by the alignment of the first element.
      add(uint64_t(v.dtype) << 32 | uint64_t(v.dim) << 8 | (v.data ? std::bit_cast<uint64_t>(v.data) % 16 : 16));
      for (int32_t d = 0; d < v.dim; d++) add(v.sizes[d]), add(v.strides[d]);
    }
  }
  for (int64_t i : call.ints) add(i);
  for (std::string_view s : call.strings) add(checksum(s));
  const void* bytes = words.begin();
  return checksum({static_cast<const char*>(bytes), words.size() * sizeof(uint64_t)});
}

std::string text_of(const ExternView& v) {
  if (!v.data) return "none";
  std::string sizes, strides;
  int64_t packed = 1;
  bool plain = true;
  for (int32_t d = v.dim; d-- > 0; packed *= v.sizes[d]) plain = plain && (v.strides[d] == packed || v.sizes[d] == 1);
  for (int32_t d = 0; d < v.dim; d++) {
    sizes += str(d ? "," : "", v.sizes[d]);
    strides += str(d ? "," : "", v.strides[d]);
  }
  return str(name(v.dtype), "[", sizes, "]", plain ? "" : str(" by [", strides, "]"));
}

std::string text_of(const ExternCall& call) {
  std::string text = name(call.op);
  for (const auto views : {call.in, call.out}) {
    for (const ExternView& v : views) text += (&v == views.data() ? " " : ", ") + text_of(v);
    if (views.data() == call.in.data()) text += " ->";
  }
  return str(text, "; ", to_string(call.device),
             extern_goes_by_threads(call.device.type) ? str(", ", call.threads, " threads") : "");
}

// -- the file ---------------------------------------------------------------------------------------------------------

std::string path_of_table() {
  const std::string folder = cache_directory();
  return folder.empty() ? "" : folder + "/tuning.txt";
}

// Reads the rows that the process does not know yet.
void read_table(Table& t, const std::string& path) {
  std::error_code problem;
  if (!fs::is_regular_file(path, problem)) return;
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line != t.first_line) return;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    std::string key, whom, op;
    Trial row;
    in >> key >> whom >> op >> row.candidate >> row.best.way >> row.best.threads >> row.gain >> row.count;
    std::getline(in >> std::ws, row.text);
    row.op = find_op(op);
    if (!in || row.op == OpId::kCount || key.size() != 16) continue;
    row.settled = true, row.for_all = whom == "all";
    if (row.for_all) t.serves_all = true;
    t.trials.try_emplace(std::strtoull(key.c_str(), nullptr, 16), std::move(row));
  }
}

void read_once(Table& t) {
  static std::once_flag once;
  if (settings().cache != CacheMode::kOff) {
    std::call_once(once, [&] {
      const std::lock_guard lock(t.mutex);
      read_table(t, path_of_table());
    });
  }
}

std::string table_text(Table& t) {
  std::string text = t.first_line + "\n";
  for (const auto& [key, row] : t.trials) {
    if (!row.settled) continue;
    char head[32], gain[32];
    std::snprintf(head, sizeof head, "%016llx", static_cast<unsigned long long>(key));
    std::snprintf(gain, sizeof gain, "%.3g", row.gain);
    text += str(head, row.for_all ? " all " : " own ", name(row.op), " ", row.candidate, " ", row.best.way, " ",
                row.best.threads, " ", gain, " ", row.count, " ", row.text, "\n");
  }
  return text;
}

// Locks the file: one process at a time reads what others have found, and adds its own results.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ >= 0) ::flock(fd_, LOCK_EX);
  }
  ~FileLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileLock(const FileLock&) = delete;

 private:
  const int fd_;
};

void write_table(Table& t, const std::string& path) {
  if (path.empty()) fail("tune: none of LUTRA_CACHE_DIR, XDG_CACHE_HOME and HOME tells where to keep the table");
  const std::lock_guard lock(t.mutex);
  std::error_code problem;
  fs::create_directories(fs::path(path).parent_path(), problem);
  const FileLock alone(path + ".lock");
  read_table(t, path);
  const std::string temporary = path + ".new";
  std::ofstream file(temporary, std::ios::trunc);
  file << table_text(t);
  file.close();
  if (file) fs::rename(temporary, path, problem);
  if (!file || problem) fail("tune: cannot write ", path);
}

void write_found(Table& t) {
  if (!t.unsaved.exchange(false)) return;
  try {
    write_table(t, t.path);
  } catch (const Error&) {  // it will be measured again
  }
}

// Saves results in the background, at the latest at the end of the process.
void save_later(Table& t) {
  if (settings().cache != CacheMode::kOn) return;
  t.path = path_of_table();
  [[maybe_unused]] static const int at_exit = std::atexit([] { write_found(table()); });
  if (!t.unsaved.exchange(true)) Job::start([&t] { write_found(t); }, Job::kPolite);
}

// -- runs -------------------------------------------------------------------------------------------------------------

LibraryChoice choice_of(const Trial& trial, LibraryChoice::Why why, const ExternOption& how, const char* candidate) {
  return {candidate, why, how.way, how.threads, trial.count, why == LibraryChoice::kFastest ? trial.gain : 1};
}

bool writes_its_operands(const ExternCall& call) {
  return std::any_of(call.out.begin(), call.out.end(), [&](const ExternView& out) {
    return std::any_of(call.in.begin(), call.in.end(), [&](const ExternView& in) { return in.data == out.data; });
  });
}

Trial new_trial(const ExternCall& call) {
  Trial trial;
  for (const ExternOption& how : extern_options(call)) trial.options.push_back({how});
  trial.count = int(trial.options.size());
  trial.op = call.op, trial.text = text_of(call);
  if (trial.options.size() == 1) {
    trial.best = trial.options[0].how, trial.candidate = extern_candidate(call, trial.best);
    trial.settled = true;
  }
  return trial;
}

double time_of(const Backend& backend, const ExternCall& call, const ExternOption& how) {
  backend.wait(call.device);
  const LaunchTimer timer(backend);
  run_extern(call, how);
  backend.wait(call.device);
  return double(timer.stop()) * 1e-9;
}

// Makes one run with the next option, without holding the lock. If an option other than the first one fails, the first
// one makes the run.
LibraryChoice measure(const Backend& backend, const ExternCall& call, Table& t, Trial& trial,
                      std::unique_lock<std::mutex>& lock) {
  Option *option = trial.next(), *first = &trial.options[0];
  lock.unlock();
  try {
    const double seconds = time_of(backend, call, option->how);
    lock.lock();
    if (option->runs++ > 0) option->seconds = std::min(option->seconds, seconds);
  } catch (const Error& e) {
    if (option == first || e.kind == ErrorKind::kInterrupt || writes_its_operands(call)) throw;
    run_extern(call, first->how);
    lock.lock();
    option->runs = kRuns;
    option = first;
  }
  if (!trial.settled && !trial.next()) trial.settle(call), save_later(t);
  return choice_of(trial, LibraryChoice::kMeasuring, option->how, extern_candidate(call, option->how));
}

LibraryChoice run_first(const ExternCall& call, LibraryChoice::Why why = LibraryChoice::kFirst) {
  return {run_extern(call), why, 0, call.threads};
}

}  // namespace

std::string LibraryChoice::text() const {
  char number[32];
  std::snprintf(number, sizeof number, "%.2f", gain);
  switch (why) {
    case kMeasuring: return str("one of ", options, " being measured");
    case kFastest:
      return gain > 1 ? str("the fastest of ", options, ", ", number, " times as fast as the table's choice")
                      : str("the table's choice, the fastest of ", options);
    default: return "the table's choice";
  }
}

LibraryChoice run_library(const Backend& backend, const ExternCall& call, Tuning tuning) {
  Table& t = table();
  read_once(t);
  if (tuning == Tuning::kOff && !t.serves_all.load(std::memory_order_relaxed)) return run_first(call);
  const uint64_t key = key_of(backend, call);
  std::unique_lock lock(t.mutex);
  auto at = t.trials.find(key);
  if (at == t.trials.end() && tuning >= Tuning::kInFlight && t.trials.size() < kMaxCalls && extern_candidate(call)) {
    at = t.trials.emplace(key, new_trial(call)).first;
  }
  if (at == t.trials.end()) {
    const bool later = tuning == Tuning::kSettled && t.trials.size() < kMaxCalls;
    lock.unlock();
    return run_first(call, later ? LibraryChoice::kMeasuring : LibraryChoice::kFirst);
  }
  Trial& trial = at->second;
  if (tuning == Tuning::kAtOnce) {
    if (!trial.found_now && trial.options.empty()) trial = new_trial(call);  // the file's result may be outdated
    trial.for_all = trial.found_now = true, t.serves_all = true;
    if (writes_its_operands(call)) tuning = Tuning::kInFlight;
  }
  if (!trial.settled && tuning >= Tuning::kInFlight) {
    LibraryChoice choice = measure(backend, call, t, trial, lock);
    while (tuning == Tuning::kAtOnce && !trial.settled) measure(backend, call, t, trial, lock);
    if (tuning != Tuning::kAtOnce) return choice;
  }
  const bool serves = trial.settled && (trial.for_all || tuning != Tuning::kOff);
  if (serves && trial.best.row < 0) trial.best.row = extern_row(call.op, call.device.type, trial.candidate);
  const ExternOption how = serves ? trial.best : ExternOption();
  const char* candidate = extern_candidate(call, how);
  const LibraryChoice choice = choice_of(trial, LibraryChoice::kFastest, how, candidate);
  const bool later = !trial.settled && tuning == Tuning::kSettled;
  lock.unlock();
  if (!candidate) return run_first(call, later ? LibraryChoice::kMeasuring : LibraryChoice::kFirst);
  run_extern(call, how);
  return choice;
}

void start_tuning() { runtime_config().tune = true; }

std::vector<TunedCall> stop_tuning() {
  runtime_config().tune = false;
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  std::vector<TunedCall> out;
  for (auto& [key, trial] : t.trials) {
    if (!std::exchange(trial.found_now, false) || !trial.settled) continue;
    out.push_back({trial.text, choice_of(trial, LibraryChoice::kFastest, trial.best, nullptr)});
    out.back().choice.candidate = trial.candidate.c_str();
  }
  return out;
}

std::string save_tuning() {
  if (settings().cache != CacheMode::kOn) fail("tune: the disk cache is off or only read, so nothing is kept");
  const std::string path = path_of_table();
  write_table(table(), path);
  return path;
}

}  // namespace lutra
