// Where a value of a trace comes from, seen from the portal that runs it: paths such as self.fc1.weight, hash-consed.
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
  kComputed,    // what the SymOp `index` makes of the numbers base and key, a number
  kOffset,      // storage offset of the tensor base, a number
  kElement,     // the one element of the tensor base, which a CPU's memory has, a number
  kInteger,     // the integer of 64 bits that the cdata base is, a number; its type is `index`
  kRandom,      // what the math.random in base draws after `index` other draws, a number
  kHook,        // function of hook `index`, of those that run, of the leaf base
  kConstant,    // constant `index`, which never changes
  kStringMeta,  // metatable of strings
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

// As reports name it: upvalue 'net', global 'lr', self.fc1.weight.
std::string report_text(const Source& source);
// base.key, base["a b"], base[3]: how a field of a source reads.
std::string field_text(const std::string& base, const std::string& string_key);
std::string index_text(const std::string& base, const std::string& key);

}  // namespace lutra
