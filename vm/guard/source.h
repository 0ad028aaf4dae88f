// The place where a value of a trace comes from, as the portal that runs it sees it: a path such as self.fc1.weight,
// hash-consed.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>

namespace lutra {

enum class SourceKind : uint8_t {
  kArg,         // argument `index` of the portal
  kVararg,      // vararg `index` of the frame, after the portal's arguments
  kSelf,        // the function that runs
  kUpvalue,     // upvalue `index` of base
  kEnv,         // environment of the function base
  kField,       // base[constant `index`], raw
  kFieldBy,     // base[value of key], raw
  kMetatable,   // metatable of base
  kLength,      // length of the table base, a number
  kSize,        // size of dimension `index` of the tensor base, a number
  kComputed,    // result of the SymOp `index` for the numbers base and key, a number
  kOffset,      // storage offset of the tensor base, a number
  kElement,     // the only element of the tensor base, on the CPU, a number
  kInteger,     // the 64-bit integer in the cdata base, whose type is `index`, as a number
  kRandom,      // the number that the math.random in base draws after `index` other draws; key: since that seed
  kHook,        // function of hook `index` of the leaf base, counting the hooks that run
  kConstant,    // constant `index`, which never changes
  kStringMeta,  // metatable of strings
  kThread,      // the running coroutine; nil: the main one
  kGrad,        // gradient of the tensor base
};

struct Source {
  SourceKind kind;
  const Source* base = nullptr;
  const Source* key = nullptr;
  int index = 0;
  std::string text;            // as the user wrote it: "self.fc1.weight"
  const char* file = nullptr;  // the line that read it first (interned)
  int line = 0;
};

// All sources of one trace. Equal paths are the same pointer.
class Sources {
 public:
  const Source* get(SourceKind kind, const Source* base, const Source* key, int index, const std::string& text,
                    const char* file, int line);

 private:
  std::deque<Source> all_;
  std::map<std::tuple<SourceKind, const Source*, const Source*, int>, const Source*> index_;
};

// Returns the name for reports: upvalue 'net', global 'lr', self.fc1.weight.
std::string report_text(const Source& source);
// Return the text of a field of a source: base.key, base["a b"], base[3].
std::string field_text(const std::string& base, const std::string& string_key);
std::string index_text(const std::string& base, const std::string& key);
// Returns the text with all positions replaced, "batch[*].ids" for batch[3].ids; "" if it has none.
std::string elements_text(const std::string& text);

}  // namespace lutra
