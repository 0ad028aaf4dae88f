// Why a graph breaks: the rows of breaks.def, and what one break was about.
#pragma once
#include <string>
#include <string_view>

namespace lutra {

enum class Break : uint8_t {
  none,
#define BREAK(id, kind, text, hint) id,
#include "vm/capture/trace/breaks.def"
};

struct BreakRow {
  const char *id, *kind, *text, *hint;
};

const BreakRow& row_of(Break why);  // not of none
// All rows, in order; with a count.
const BreakRow* break_rows(size_t& count);
// Of a call of a C function.
Break break_of_call(const std::string& function);
// Of a call of a function of lt that changes something outside of graphs.
Break break_of_effect(const std::string& function);

// Where the row is explained.
std::string anchor_of(Break why);

// What a break is about, beside its row. dirty: the instruction has changed something already.
struct BreakAbout {
  std::string subject, hint;
  bool dirty = false;
};

struct BreakPlace {
  const char* file = nullptr;
  int line = 0;
};

// One break. `reason` holds no line, name of a variable or address.
struct BreakReason {
  Break id = Break::none;
  std::string reason, hint;
  BreakPlace place;
  std::string chain;  // "in g at a.lua:5, called from a.lua:9"; empty where nothing was inlined
  std::string eager;  // the callee that runs as it is, since its frame cannot be rebuilt at the break, and why not

  BreakReason() = default;
  BreakReason(Break id, const BreakAbout& about, BreakPlace place, std::string chain = "");
  bool caught = false;  // a pcall of the trace stands around it

  explicit operator bool() const { return id != Break::none; }
  const char* kind() const { return row_of(id).kind; }
  // Eager code raises the error, too, and nothing in the trace catches it.
  bool is_raised() const { return id != Break::none && !caught && std::string_view(kind()) == "error"; }
};

// The line of the source where a file has it, without what stands around it; else empty.
std::string source_line(const BreakPlace& place);

}  // namespace lutra
