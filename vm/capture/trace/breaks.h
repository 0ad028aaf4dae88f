// Reasons of graph breaks: the rows of breaks.def, and the details of one break.
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

const BreakRow& row_of(Break why);  // not for none
// Returns all rows, in order, and their number.
const BreakRow* break_rows(size_t& count);
// Returns the break for a call of a C function.
Break break_of_call(const std::string& function);
// Returns the break for a call of a function of lt that changes something outside of graphs.
Break break_of_effect(const std::string& function);

// Returns the anchor of the row's explanation in docs/graph_breaks.md.
std::string anchor_of(Break why);

// The details of a break in addition to its row. dirty: the instruction has already changed something.
struct BreakAbout {
  std::string subject, hint;
  bool dirty = false;
};

struct BreakPlace {
  const char* file = nullptr;
  int line = 0;
};

// A graph break. `reason` contains no line, variable name or address.
struct BreakReason {
  Break id = Break::none;
  std::string reason, hint;
  BreakPlace place;
  std::string chain;  // "in g at a.lua:5, called from a.lua:9"; empty if nothing was inlined
  std::string eager;  // the callee that runs uncompiled because its frame cannot be rebuilt at the break, and why not

  BreakReason() = default;
  BreakReason(Break id, const BreakAbout& about, BreakPlace place, std::string chain = "");
  bool caught = false;  // a pcall in the trace would catch it

  explicit operator bool() const { return id != Break::none; }
  const char* kind() const { return row_of(id).kind; }
  // Returns whether the break is an error that eager code raises too, and that nothing in the trace catches.
  bool is_raised() const { return id != Break::none && !caught && std::string_view(kind()) == "error"; }
};

// Returns the source line, without surrounding space; empty if there is no file with it.
std::string source_line(const BreakPlace& place);

}  // namespace lutra
