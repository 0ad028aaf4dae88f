// Sources: hash-consing and their text.
#include "vm/guard/source.h"

#include <cctype>

namespace lutra {

const Source* Sources::get(SourceKind kind, const Source* base, const Source* key, int index, const std::string& text,
                           const char* file, int line) {
  const Source*& slot = index_[{kind, base, key, index}];
  if (!slot) {
    all_.push_back({kind, base, key, index, text, file, line});
    slot = &all_.back();
  }
  return slot;
}

std::string report_text(const Source& s) {
  if (s.kind == SourceKind::kUpvalue) return "upvalue '" + s.text + "'";
  if (s.kind == SourceKind::kField && s.base->kind == SourceKind::kEnv) return "global '" + s.text + "'";
  return s.text;
}

namespace {

// Shortens a text, because paths along a linked list may have any length. Texts are for people. They also select
// sources that are treated in another way (such as with dynamic sizes); it does no harm if others are selected, too.
std::string shortened(const std::string& base) {
  constexpr size_t kLongest = 400, kEnd = 150;
  if (base.size() <= kLongest) return base;
  return base.substr(0, kEnd) + " ... " + base.substr(base.size() - kEnd);
}

}  // namespace

std::string index_text(const std::string& base, const std::string& key) { return shortened(base) + "[" + key + "]"; }

std::string elements_text(const std::string& text) {
  std::string out;
  bool any = false;
  for (size_t i = 0; i < text.size(); i++) {
    out += text[i];
    if (text[i] != '[') continue;
    const size_t end = text.find_first_not_of("0123456789", i + 1);
    if (end == i + 1 || end == std::string::npos || text[end] != ']') continue;
    out += '*', any = true;
    i = end - 1;
  }
  return any ? out : "";
}

std::string field_text(const std::string& base, const std::string& key) {
  bool identifier = !key.empty() && !isdigit(static_cast<unsigned char>(key[0]));
  for (char c : key) identifier = identifier && (isalnum(static_cast<unsigned char>(c)) || c == '_');
  return identifier ? shortened(base) + "." + key : index_text(base, "\"" + key + "\"");
}

}  // namespace lutra
