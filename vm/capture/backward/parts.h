// Compiled autograd: runs the parts of a backward as compiled graphs instead of the engine. A part is compiled when it
// occurs the second time.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/autograd/segment.h"
#include "vm/capture/backward/record.h"
#include "vm/guard/symbols.h"

struct lua_State;

namespace lutra {

struct Runtime;

// A compiled part, for certain sizes and numbers.
struct BackwardEntry {
  std::vector<int64_t> sizes;
  std::vector<double> numbers, read;  // the part's own; those that its calls read when it was compiled
  PartSymbols symbols;
  SymbolProgram program;
  std::vector<std::pair<uint32_t, int>> places;  // sizes that are symbols, with their indices in the program
  RecordedPart recorded;                         // without its graph
  std::vector<size_t> views;                     // see plain_views
  std::shared_ptr<Segment> segment;
  // For reports.
  std::string place, graph_text;
  std::vector<std::string> calls;  // places of the functions of calls that are part of it
  size_t ops = 0;
  double capture_ms = 0, compile_ms = 0;
  int64_t hits = 0;
};

// Parts that differ only in sizes and numbers.
struct KnownPart {
  std::vector<uint64_t> facts;
  std::vector<std::shared_ptr<const void>> objects;
  std::vector<int64_t> sizes;  // sizes of the last occurrence
  std::vector<double> numbers;
  PartSymbols changed;
  std::vector<std::shared_ptr<BackwardEntry>> entries;
  std::string refused;    // why it could not be compiled
  int failures = 0;       // number of failures
  bool for_good = false;  // it always runs eagerly
};

class CompiledBackward final : public BackwardParts {
 public:
  CompiledBackward(Runtime& runtime, TraceState& state) : runtime_(runtime), calls_(state) {}
  bool is_on() const override;
  void refuse(const char* why) override;
  bool run(Engine& engine, uint64_t& stop) override;
  void clear();
  // Returns the compiled entries, in order.
  const std::vector<std::shared_ptr<BackwardEntry>>& log() const { return log_; }

 private:
  std::shared_ptr<KnownPart> find(const BackwardPart& part, bool& fresh);
  void make_room(size_t facts);
  bool run_part(Engine& engine, uint64_t& stop);
  // Returns the entry that holds for the part, or null. missed: the call whose guards failed for the latest entry; null
  // if it failed for another reason.
  std::shared_ptr<BackwardEntry> match(const KnownPart& known, BackwardPart& part, const PartCall*& missed);
  std::shared_ptr<BackwardEntry> compile(Engine& engine, KnownPart& known, BackwardPart& part, const PartCall* missed);
  std::shared_ptr<BackwardEntry> make(Engine& engine, KnownPart& known, BackwardPart& part);
  // Runs an entry. Returns false if an op failed; then nothing has changed.
  bool run_entry(Engine& engine, BackwardPart& part, BackwardEntry& entry);

  Runtime& runtime_;
  CallCaptures calls_;
  // Known parts by hash of the facts. While guards run, a finalizer may run; it may clear this map or run a backward of
  // its own.
  std::unordered_multimap<uint64_t, std::shared_ptr<KnownPart>> known_;
  size_t facts_ = 0;  // number of words of all known facts
  std::vector<std::shared_ptr<BackwardEntry>> log_;
};

}  // namespace lutra
