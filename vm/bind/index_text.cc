// Reads the forms of an index into IndexItems: x[0], x[mask], x[{0, {1, 3}, "::2", lt.newaxis}], x["0, 1:3, ..."].
#include <charconv>

#include "vm/bind/functions.h"
#include "vm/bind/indexing.h"

namespace lutra {
namespace {

using H = ArgReader::H;

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

SymInt parse_int(std::string_view text, std::string_view whole) {
  std::string_view digits = text;
  if (!digits.empty() && digits.front() == '+') digits.remove_prefix(1);
  int64_t v = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    fail("index: '", whole, "' is neither an integer, a slice (start:stop:step), None nor ...");
  }
  return v;
}

// Parses a slice such as "1:3" or "::2".
IndexItem parse_slice(std::string_view text) {
  IndexItem item{IndexItem::kSlice};
  std::optional<SymInt>* const parts[] = {&item.start, &item.stop, &item.step};
  std::string_view rest = text;
  for (int i = 0;; ++i) {
    if (i == 3) fail("index: '", text, "' has more than start:stop:step");
    const size_t colon = rest.find(':');
    const std::string_view part = trim(rest.substr(0, colon));
    if (!part.empty()) *parts[i] = parse_int(part, text);
    if (colon == std::string_view::npos) return item;
    rest.remove_prefix(colon + 1);
  }
}

IndexItem parse_item(std::string_view text) {
  text = trim(text);
  if (text == "...") return {IndexItem::kEllipsis};
  if (text == "None") return {IndexItem::kNewAxis};
  if (text.find(',') != std::string_view::npos) fail("index: '", text, "' inside a table must be one index");
  if (text.find(':') != std::string_view::npos) return parse_slice(text);
  IndexItem item{IndexItem::kInt};
  item.at = parse_int(text, text);
  return item;
}

std::vector<IndexItem> parse_text(std::string_view text) {
  std::vector<IndexItem> items;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view part = trim(rest.substr(0, comma));
    const bool last = comma == std::string_view::npos;
    if (part.empty() && !(last && !items.empty())) fail("index: '", text, "' has an empty place");
    if (!part.empty()) items.push_back(parse_item(part));
    if (last) return items;
    rest.remove_prefix(comma + 1);
  }
}

IndexItem read_tensor(const Tensor& t) {
  IndexItem item{IndexItem::kTensor};
  item.tensor = index_tensor(t);
  return item;
}

// Reads a slice {start, stop, step}; an open end is nil.
IndexItem read_slice(ArgReader& in, H table) {
  IndexItem item{IndexItem::kSlice};
  std::optional<SymInt>* const parts[] = {&item.start, &item.stop, &item.step};
  if (in.length(table) > 3) {
    fail("index: a table inside an index is a slice {start, stop, step}; a list of positions is an int64 tensor");
  }
  for (int i = 0; i < 3; ++i) {
    const H h = in.index(table, i + 1);
    const LuaKind kind = in.kind(h);
    if (kind == LuaKind::kNil) continue;
    if (kind != LuaKind::kNumber && kind != LuaKind::kInt64) {
      fail("index: a slice {start, stop, step} holds integers, got ", in.describe(h));
    }
    *parts[i] = read_int("index", "slice", in, h);
  }
  return item;
}

IndexItem read_item(ArgReader& in, H h) {
  switch (in.kind(h)) {
    case LuaKind::kNumber:
    case LuaKind::kInt64: {
      IndexItem item{IndexItem::kInt};
      item.at = read_int("index", "position", in, h);
      return item;
    }
    case LuaKind::kString: return parse_item(in.string(h));
    case LuaKind::kTensor: return read_tensor(in.tensor(h));
    case LuaKind::kTable: return read_slice(in, h);
    default:
      fail("index: ", in.describe(h), " is no index (integer, slice, int64 or bool tensor, lt.newaxis, lt.ellipsis)");
  }
}

}  // namespace

Tensor index_tensor(const Tensor& t) {
  switch (t->dtype) {
    case DType::kInt64:
    case DType::kInt32:
    case DType::kBool: return t;
    case DType::kUInt8: return op1(OpId::ne, {t, vdim(0)});
    default:
      fail("index: a tensor index must be int64 or bool (or int32, uint8), got ", name(t->dtype),
           is_float(t->dtype) ? "; lt.tensor({0, 2}, {dtype=\"int64\"}) makes positions" : "");
  }
}

std::vector<IndexItem> read_index(ArgReader& in, H index) {
  const LuaKind kind = in.kind(index);
  if (kind == LuaKind::kString) return parse_text(in.string(index));
  if (kind == LuaKind::kNil) fail("index: nil is no index; lt.newaxis adds a dimension");
  if (kind != LuaKind::kTable) return {read_item(in, index)};
  const std::vector<std::string> keys = in.keys(index);
  for (const std::string& key : keys) {
    if (key != "?") fail("index: an index table is a list, but has the key '", key, "'");
  }
  std::vector<IndexItem> items;
  const int64_t n = in.length(index);
  // The length of a list with a gap may be that of its part before the gap.
  if (int64_t(keys.size()) != n) fail("index: nil is no index; an index table is a list without gaps, from 1 on");
  for (int64_t i = 1; i <= n; ++i) items.push_back(read_item(in, in.index(index, i)));
  return items;
}

}  // namespace lutra
