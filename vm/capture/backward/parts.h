// Compiled autograd: what the engine of backward is about to run in, the same run as compiled graphs out. A part of a
// backward that is met the second time is compiled.
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

// A part that was compiled, for certain sizes and numbers.
struct BackwardEntry {
  std::vector<int64_t> sizes;
  std::vector<double> numbers, read;  // the part's own; those that its calls read when it was made
  PartSymbols symbols;
  SymbolProgram program;
  std::vector<std::pair<uint32_t, int>> places;  // sizes that are symbols: where the program has them
  RecordedPart recorded;                         // without its graph
  std::vector<size_t> views;                     // see plain_views
  std::shared_ptr<Segment> segment;
  // For reports.
  std::string place, graph_text;
  std::vector<std::string> calls;  // that are a part of it: where their functions are
  size_t ops = 0;
  double capture_ms = 0, compile_ms = 0;
  int64_t hits = 0;
};

// Parts that differ in sizes and numbers only.
struct KnownPart {
  std::vector<uint64_t> facts;
  std::vector<std::shared_ptr<const void>> objects;
  std::vector<int64_t> sizes;  // seen last
  std::vector<double> numbers;
  PartSymbols changed;
  std::vector<std::shared_ptr<BackwardEntry>> entries;
  std::string refused;    // why it could not be compiled
  int failures = 0;       // how often
  bool for_good = false;  // it runs eagerly
};

class CompiledBackward final : public BackwardParts {
 public:
  CompiledBackward(Runtime& runtime, TraceState& state) : runtime_(runtime), calls_(state) {}
  bool is_on() const override;
  void refuse(const char* why) override;
  bool run(Engine& engine, uint64_t& stop) override;
  void clear();
  // Those compiled, in order.
  const std::vector<std::shared_ptr<BackwardEntry>>& log() const { return log_; }

 private:
  std::shared_ptr<KnownPart> find(const BackwardPart& part, bool& fresh);
  void make_room(size_t facts);
  bool run_part(Engine& engine, uint64_t& stop);
  // missed: of an entry that does not hold, made last, the call whose guards say so; null: something else does.
  std::shared_ptr<BackwardEntry> match(const KnownPart& known, BackwardPart& part, const PartCall*& missed);
  std::shared_ptr<BackwardEntry> compile(Engine& engine, KnownPart& known, BackwardPart& part, const PartCall* missed);
  std::shared_ptr<BackwardEntry> make(Engine& engine, KnownPart& known, BackwardPart& part);
  // False: an op failed, and nothing has changed.
  bool run_entry(Engine& engine, BackwardPart& part, BackwardEntry& entry);

  Runtime& runtime_;
  CallCaptures calls_;
  // By hash of the facts. Where guards are asked, a finalizer may run: it may reset all, or run a backward of its own.
  std::unordered_multimap<uint64_t, std::shared_ptr<KnownPart>> known_;
  size_t facts_ = 0;  // words of all known
  std::vector<std::shared_ptr<BackwardEntry>> log_;
};

}  // namespace lutra
