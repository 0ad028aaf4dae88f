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

// A stream's operator for what texts are made of, without a stream's costs and without a text for each part.
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

// mul(size(0, 1), 4); of a large expression a part, and "..." for the rest: for people, not for the parser.
std::string expr_text(std::span<const SymExpr> exprs, int32_t id);
std::string leaf_text(const SymExpr& e);  // of a leaf or a constant
Text& write_leaf(Text& out, const SymExpr& e);
// "sym size(0, 1) = 5 in 2 to 1000": a leaf's hint, and what else it may be where that is not any size.
std::string declared(const SymEnv& env, int32_t leaf);
std::string quote(const std::string& s);  // 'it\'s'
std::string number_text(double v);        // shortest that reads back, always with '.' or 'e'
Text& write_number(Text& out, double v);

// Every tensor is on that device: texts do not say on which one.
void move_to(Graph& graph, Device device);

}  // namespace lutra
