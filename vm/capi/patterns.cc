// Lua's patterns with an interruptible matcher. LuaJIT's own matcher takes exponential time for some patterns, within
// one C function. This matcher of the same language regularly checks whether it shall stop.
#include "vm/capi/patterns.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <lua.hpp>
#include <string>
#include <string_view>

#include "ops/core/error.h"
#include "ops/core/interrupt.h"
#include "vm/host/runtime.h"

namespace lutra::capi {
namespace {

constexpr int kMaxCaptures = 32, kMaxDepth = 200;
constexpr int64_t kLook = 1 << 14;  // steps between two checks

bool in_class(int c, int letter) {
  bool yes = false;
  switch (std::tolower(letter)) {
    case 'a': yes = std::isalpha(c); break;
    case 'c': yes = std::iscntrl(c); break;
    case 'd': yes = std::isdigit(c); break;
    case 'g': yes = std::isgraph(c); break;
    case 'l': yes = std::islower(c); break;
    case 'p': yes = std::ispunct(c); break;
    case 's': yes = std::isspace(c); break;
    case 'u': yes = std::isupper(c); break;
    case 'w': yes = std::isalnum(c); break;
    case 'x': yes = std::isxdigit(c); break;
    case 'z': yes = c == 0; break;
    default: return letter == c;
  }
  return std::isupper(letter) ? !yes : yes;
}

// A match of one text against one pattern. Positions are pointers; null means no match.
class Matcher {
 public:
  using Place = const char*;
  static constexpr ptrdiff_t kOpen = -1, kPosition = -2;
  struct Capture {
    Place begin;
    ptrdiff_t length;
  };

  Matcher(std::string_view text, std::string_view pattern)
      : begin_(text.data()), end_(text.data() + text.size()), pattern_end_(pattern.data() + pattern.size()) {}

  Place match_at(Place s, Place p) {
    level_ = 0, depth_ = 0;
    return match(s, p);
  }
  int captures() const { return level_; }
  Place begin() const { return begin_; }
  Place end() const { return end_; }

  // Without captures the whole match counts as capture 0.
  void push_capture(lua_State* L, int i, Place s, Place e) const {
    if (i >= level_) {
      if (i != 0) fail("invalid capture index");
      lua_pushlstring(L, s, size_t(e - s));
      return;
    }
    const Capture& c = capture_[i];
    if (c.length == kOpen) fail("unfinished capture");
    if (c.length == kPosition) {
      lua_pushinteger(L, c.begin - begin_ + 1);
    } else {
      lua_pushlstring(L, c.begin, size_t(c.length));
    }
  }
  int push_captures(lua_State* L, Place s, Place e) const {
    const int n = level_ == 0 && s ? 1 : level_;
    luaL_checkstack(L, n + 4, "too many captures");
    for (int i = 0; i < n; i++) push_capture(L, i, s, e);
    return n;
  }

  void count(int64_t steps) {
    if ((steps_ += steps) < kLook) return;
    steps_ = 0;
    check_stop();
  }

 private:
  static int byte(Place s) { return static_cast<unsigned char>(*s); }

  Place class_end(Place p) {
    if (p == pattern_end_) fail("malformed pattern (ends with '%')");
    const Place from = p;
    const char c = *p++;
    if (c == '%') {
      if (p == pattern_end_) fail("malformed pattern (ends with '%')");
      return p + 1;
    }
    if (c != '[') return p;
    if (p != pattern_end_ && *p == '^') p++;
    do {  // a ']' at the start is an element of the set
      if (p == pattern_end_) fail("malformed pattern (missing ']')");
      if (*p++ == '%' && p != pattern_end_) p++;
    } while (p == pattern_end_ || *p != ']');
    count(p - from);
    return p + 1;
  }

  // Returns whether c is in the set from p, which points to '[', to last, which points to ']'.
  static bool in_set(int c, Place p, Place last) {
    bool found = true;
    if (p[1] == '^') found = false, p++;
    while (++p < last) {
      if (*p == '%') {
        p++;
        if (in_class(c, byte(p))) return found;
      } else if (p[1] == '-' && p + 2 < last) {
        p += 2;
        if (byte(p - 2) <= c && c <= byte(p)) return found;
      } else if (byte(p) == c) {
        return found;
      }
    }
    return !found;
  }

  bool single(int c, Place p, Place end) {
    count(end - p);
    switch (*p) {
      case '.': return true;
      case '%': return in_class(c, byte(p + 1));
      case '[': return in_set(c, p, end - 1);
      default: return byte(p) == c;
    }
  }

  Place balance(Place s, Place p) {
    if (pattern_end_ - p < 2) fail("unbalanced pattern");
    if (s == end_ || *s != *p) return nullptr;
    int open = 1;
    for (Place t = s + 1; t < end_; t++) {
      count(1);
      if (*t == p[1]) {
        if (--open == 0) return t + 1;
      } else if (*t == *p) {
        open++;
      }
    }
    return nullptr;
  }

  Place most(Place s, Place p, Place end) {
    ptrdiff_t i = 0;
    for (; s + i < end_ && single(byte(s + i), p, end); i++) {
    }
    for (; i >= 0; i--) {
      if (Place r = match(s + i, end + 1)) return r;
    }
    return nullptr;
  }

  Place least(Place s, Place p, Place end) {
    for (;; s++) {
      if (Place r = match(s, end + 1)) return r;
      if (s == end_ || !single(byte(s), p, end)) return nullptr;
    }
  }

  Place open_capture(Place s, Place p, ptrdiff_t kind) {
    if (level_ >= kMaxCaptures) fail("too many captures");
    capture_[level_++] = {s, kind};
    Place r = match(s, p);
    if (!r) level_--;
    return r;
  }

  Place close_capture(Place s, Place p) {
    int i = level_ - 1;
    while (i >= 0 && capture_[i].length != kOpen) i--;
    if (i < 0) fail("invalid pattern capture");
    capture_[i].length = s - capture_[i].begin;
    Place r = match(s, p);
    if (!r) capture_[i].length = kOpen;
    return r;
  }

  Place back_reference(Place s, int digit) {
    const int i = digit - '1';
    if (i < 0 || i >= level_ || capture_[i].length == kOpen) fail("invalid capture index");
    if (capture_[i].length == kPosition) return nullptr;
    const size_t n = size_t(capture_[i].length);
    count(int64_t(n));
    return size_t(end_ - s) >= n && std::memcmp(capture_[i].begin, s, n) == 0 ? s + n : nullptr;
  }

  Place frontier(Place s, Place p) {
    if (p == pattern_end_ || *p != '[') fail("missing '[' after '%f' in pattern");
    Place end = class_end(p);
    const int before = s == begin_ ? 0 : byte(s - 1), here = s == end_ ? 0 : byte(s);
    if (in_set(before, p, end - 1) || !in_set(here, p, end - 1)) return nullptr;
    return match(s, end);
  }

  struct Deeper {
    explicit Deeper(int& depth) : depth(depth) {
      if (++depth > kMaxDepth) fail("pattern too complex");
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  // Matches an item that begins with '%' but is no character class, and advances s past it. Returns false if it is a
  // class.
  bool special(Place& s, Place& p, Place* result, bool* goes_on) {
    *goes_on = false;
    const char kind = p + 1 < pattern_end_ ? p[1] : 0;
    if (kind == 'b') {
      s = balance(s, p + 2);
      p += 4;
    } else if (kind == 'f') {
      *result = frontier(s, p + 2);
      return true;
    } else if (std::isdigit(static_cast<unsigned char>(kind))) {
      s = back_reference(s, kind);
      p += 2;
    } else {
      return false;
    }
    *result = nullptr;
    *goes_on = s != nullptr;
    return true;
  }

  Place match(Place s, Place p) {
    const Deeper deeper(depth_);
    while (p != pattern_end_) {
      count(1);
      if (*p == '(') {
        const bool position = p + 1 < pattern_end_ && p[1] == ')';
        return position ? open_capture(s, p + 2, kPosition) : open_capture(s, p + 1, kOpen);
      }
      if (*p == ')') return close_capture(s, p + 1);
      if (*p == '$' && p + 1 == pattern_end_) return s == end_ ? s : nullptr;
      if (*p == '%') {
        Place result;
        bool goes_on;
        if (special(s, p, &result, &goes_on)) {
          if (!goes_on) return result;
          continue;
        }
      }
      Place end = class_end(p);
      const char repeat = end == pattern_end_ ? 0 : *end;
      if (repeat == '*') return most(s, p, end);
      if (repeat == '-') return least(s, p, end);
      const bool fits = s < end_ && single(byte(s), p, end);
      if (repeat == '+') return fits ? most(s + 1, p, end) : nullptr;
      if (repeat == '?') {
        if (fits) {
          if (Place r = match(s + 1, end + 1)) return r;
        }
        p = end + 1;
        continue;
      }
      if (!fits) return nullptr;
      s++, p = end;
    }
    return s;
  }

  Place begin_, end_, pattern_end_;
  int level_ = 0, depth_ = 0;
  int64_t steps_ = 0;
  Capture capture_[kMaxCaptures];
};

std::string_view text_at(lua_State* L, int i) {
  size_t n = 0;
  const char* s = luaL_checklstring(L, i, &n);
  return {s, n};
}

// Finds one plain text in another. It can be interrupted, since texts of equal letters take long.
const char* find_plain(Matcher& m, std::string_view text, size_t from, std::string_view what) {
  if (what.empty()) return text.data() + from;
  for (const char *s = text.data() + from, *end = text.data() + text.size(); size_t(end - s) >= what.size(); s++) {
    s = static_cast<const char*>(std::memchr(s, what[0], size_t(end - s) - what.size() + 1));
    if (!s) return nullptr;
    m.count(int64_t(what.size() / 16) + 1);
    if (std::memcmp(s, what.data(), what.size()) == 0) return s;
  }
  return nullptr;
}

int find_or_match(lua_State* L, bool find) {
  const std::string_view text = text_at(L, 1), pattern = text_at(L, 2);
  ptrdiff_t from = luaL_optinteger(L, 3, 1);
  if (from < 0) from += ptrdiff_t(text.size()) + 1;
  from = std::max<ptrdiff_t>(from, 1) - 1;
  if (from > ptrdiff_t(text.size())) return lua_pushnil(L), 1;
  Matcher m(text, pattern);
  if (find && (lua_toboolean(L, 4) || pattern.find_first_of("^$*+?.([%-") == std::string_view::npos)) {
    const char* s = find_plain(m, text, size_t(from), pattern);
    if (!s) return lua_pushnil(L), 1;
    lua_pushinteger(L, s - text.data() + 1);
    lua_pushinteger(L, s - text.data() + ptrdiff_t(pattern.size()));
    return 2;
  }
  const bool anchored = !pattern.empty() && pattern[0] == '^';
  const char* p = pattern.data() + anchored;
  for (const char* s = text.data() + from; s <= m.end(); s++) {
    if (const char* e = m.match_at(s, p)) {
      if (!find) return m.push_captures(L, s, e);
      lua_pushinteger(L, s - text.data() + 1);
      lua_pushinteger(L, e - text.data());
      return 2 + m.push_captures(L, nullptr, nullptr);
    }
    if (anchored) break;
  }
  return lua_pushnil(L), 1;
}
int find_impl(lua_State* L) { return find_or_match(L, true); }
int match_impl(lua_State* L) { return find_or_match(L, false); }

// Upvalues: the text, the pattern, the position where the next match starts.
int gmatch_next_impl(lua_State* L) {
  const std::string_view text = text_at(L, lua_upvalueindex(1)), pattern = text_at(L, lua_upvalueindex(2));
  Matcher m(text, pattern);
  for (const char* s = text.data() + lua_tointeger(L, lua_upvalueindex(3)); s <= m.end(); s++) {
    const char* e = m.match_at(s, pattern.data());
    if (!e) continue;
    lua_pushinteger(L, e - text.data() + (e == s));
    lua_replace(L, lua_upvalueindex(3));
    return m.push_captures(L, s, e);
  }
  return 0;
}
int gmatch_next(lua_State* L) { return guarded(L, gmatch_next_impl); }

int gmatch_impl(lua_State* L) {
  text_at(L, 1), text_at(L, 2);
  lua_settop(L, 2);
  lua_pushinteger(L, 0);
  lua_pushcclosure(L, gmatch_next, 3);
  return 1;
}

// Pushes the replacement of a match.
void push_replacement(lua_State* L, const Matcher& m, const char* s, const char* e) {
  if (lua_isfunction(L, 3)) {
    lua_pushvalue(L, 3);
    lua_call(L, m.push_captures(L, s, e), 1);
  } else if (lua_istable(L, 3)) {
    m.push_capture(L, 0, s, e);
    lua_gettable(L, 3);
  } else {
    const std::string_view news = text_at(L, 3);
    const int base = lua_gettop(L);
    lua_pushliteral(L, "");
    for (size_t i = 0, next; i < news.size(); i = next) {
      next = news.find('%', i);
      if (next == std::string_view::npos) next = news.size();
      if (next > i) {
        lua_pushlstring(L, news.data() + i, next - i);
      } else if (++next == news.size() || !std::isdigit(static_cast<unsigned char>(news[next]))) {
        lua_pushlstring(L, news.data() + next, next < news.size());
        next++;
      } else if (news[next++] == '0') {
        lua_pushlstring(L, s, size_t(e - s));
      } else {
        m.push_capture(L, news[next - 1] - '1', s, e);
      }
      lua_concat(L, lua_gettop(L) - base);
    }
    return;
  }
  if (!lua_toboolean(L, -1)) {
    lua_pop(L, 1);
    lua_pushlstring(L, s, size_t(e - s));
  } else if (!lua_isstring(L, -1)) {
    fail("invalid replacement value (a ", luaL_typename(L, -1), ")");
  }
}

int gsub_impl(lua_State* L) {
  const std::string_view text = text_at(L, 1), pattern = text_at(L, 2);
  const int kind = lua_type(L, 3);
  if (kind != LUA_TNUMBER && kind != LUA_TSTRING && kind != LUA_TFUNCTION && kind != LUA_TTABLE) {
    fail("bad argument #3 to 'gsub' (string/function/table expected, got ", luaL_typename(L, 3), ")");
  }
  const lua_Integer most = luaL_optinteger(L, 4, lua_Integer(text.size()) + 1);
  lua_settop(L, 3);
  const bool anchored = !pattern.empty() && pattern[0] == '^';
  const char* p = pattern.data() + anchored;
  Matcher m(text, pattern);
  luaL_Buffer out;
  luaL_buffinit(L, &out);
  const char* s = text.data();
  lua_Integer n = 0;
  while (n < most) {
    const char* e = m.match_at(s, p);
    if (e) {
      n++;
      push_replacement(L, m, s, e);
      luaL_addvalue(&out);
    }
    if (e && e > s) {
      s = e;
    } else if (s < m.end()) {
      luaL_addchar(&out, *s++);
    } else {
      break;
    }
    if (anchored) break;
  }
  luaL_addlstring(&out, s, size_t(m.end() - s));
  luaL_pushresult(&out);
  lua_pushinteger(L, n);
  return 2;
}

int find(lua_State* L) { return guarded(L, find_impl); }
int match(lua_State* L) { return guarded(L, match_impl); }
int gmatch(lua_State* L) { return guarded(L, gmatch_impl); }
int gsub(lua_State* L) { return guarded(L, gsub_impl); }

}  // namespace

void push_patterns(lua_State* L) {
  static const luaL_Reg functions[] = {
      {"find", find}, {"match", match}, {"gmatch", gmatch}, {"gsub", gsub}, {nullptr, nullptr}};
  lua_createtable(L, 0, 4);
  for (const luaL_Reg* r = functions; r->name; r++) lua_pushcfunction(L, r->func), lua_setfield(L, -2, r->name);
}

}  // namespace lutra::capi
