// What the printer and the parser of graphs share.
#pragma once
#include <charconv>
#include <concepts>
#include <span>
#include <string>
#include <string_view>

#include "jit/graph/graph.h"
#include "ops/core/sym.h"

namespace lutra {

// A minimal stream for graph text. It is cheaper than std::ostream, and makes no string for each part.
struct Text {
  std::string text;
  Text& operator<<(std::string_view s) {
    text += s;
    return *this;
  }
  Text& operator<<(char c) {
    text += c;
    return *this;
  }
  template <std::integral T>
  Text& operator<<(T i) {
    char digits[24];
    text.append(digits, size_t(std::to_chars(digits, digits + sizeof digits, i).ptr - digits));
    return *this;
  }
};

// Prints an expression for people, e.g. mul(size(0, 1), 4). Prints only a part of a large one, "..." for the rest, so
// the parser cannot read it.
std::string expr_text(std::span<const SymExpr> exprs, int32_t id);
std::string leaf_text(const SymExpr& e);  // e is a leaf or a constant
Text& write_leaf(Text& out, const SymExpr& e);
// Declares a leaf with its hint, e.g. "sym size(0, 1) = 5 in 2 to 1000". The range is printed only if it excludes some
// size.
std::string declared(const SymEnv& env, int32_t leaf);
std::string quote(const std::string& s);  // 'it\'s'
std::string number_text(double v);        // shortest that reads back, always with '.' or 'e'
Text& write_number(Text& out, double v);

// Puts all tensors of the graph on a device.
void move_to(Graph& graph, Device device);

}  // namespace lutra
