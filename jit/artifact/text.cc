// Artifacts as JSON. A struct is an object with its members' names as keys; an enumeration is its text; a kernel is the
// lines of its loop IR.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "jit/artifact/fields.h"
#include "jit/graph/text.h"

namespace lutra {
namespace artifact {
namespace {

using Json = nlohmann::ordered_json;

const std::string kFormat = "lutra artifact 1";

// -- texts of enumerations

std::string text_of(DType v) { return v < DType::kNone ? info(v).name : "none"; }
std::string text_of(OpId v) { return name(v); }
std::string text_of(SymOp v) { return name(v); }
std::string text_of(SymCmp v) { return name(v); }
std::string text_of(DeviceType v) { return std::to_string(int(v)); }
std::string text_of(Buffer::Kind v) {
  static const char* const names[] = {"input", "constant", "output", "temporary"};
  return names[v];
}
std::string text_of(PlanOutput::Kind v) {
  static const char* const names[] = {"tensor", "scalar", "none"};
  return names[v];
}
const char* const kLaunches[] = {"kernel", "extern"};

// -- bytes as hexadecimal digits

std::string to_hex(const std::string& bytes) {
  std::string out;
  for (unsigned char c : bytes) out += "0123456789abcdef"[c >> 4], out += "0123456789abcdef"[c & 15];
  return out;
}

std::string from_hex(const std::string& digits) {
  const std::string known = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    const size_t high = known.find(digits[i]), low = known.find(digits[i + 1]);
    if (high == std::string::npos || low == std::string::npos) throw Damaged("bytes that are no hexadecimal digits");
    out += char(high << 4 | low);
  }
  return out;
}

// "x.kind, x.dtype" to kind, dtype
std::vector<std::string> names_of(const char* text) {
  std::vector<std::string> out;
  for (const char* p = text; (p = std::strstr(p, "x."));) {
    const char* end = p += 2;
    while (*end && *end != ',') end++;
    out.emplace_back(p, end);
    p = end;
  }
  return out;
}

class JsonWriter {
 public:
  template <class T>
  using Ref = const T&;

  template <class... T>
  void fields_of(const char* names, const T&... values) {
    const std::vector<std::string> keys = names_of(names);
    size_t k = 0;
    Json object = Json::object();
    ((object[keys[k++]] = json(values)), ...);
    made_ = std::move(object);
  }

  template <class T>
  Json json(const T& v) {
    if constexpr (std::is_same_v<T, double>) {
      return std::isfinite(v) ? Json(v) : Json(number_text(v));
    } else if constexpr (std::is_enum_v<T>) {
      return text_of(v);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return v;
    } else {
      fields(*this, v);
      return std::move(made_);
    }
  }
  // JSON is UTF-8, but a file name may have any bytes.
  Json json(const std::string& v) {
    try {
      Json(v).dump();
      return v;
    } catch (const Json::exception&) {
      return {{"bytes", to_hex(v)}};
    }
  }
  template <class T>
  Json json(const std::vector<T>& v) {
    Json list = Json::array();
    for (const T& each : v) list.push_back(json(each));
    return list;
  }
  Json json(const Launch& launch) {
    return {{kLaunches[launch.index()], std::visit([&](const auto& held) { return json(held); }, launch)}};
  }
  Json json(const loop::Kernel& k) {
    Json lines = Json::array();
    const std::string text = print(k);
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
      end = std::min(text.find('\n', at), text.size());
      lines.push_back(text.substr(at, end - at));
    }
    return lines;
  }

 private:
  Json made_;
};

// Reads JSON. Errors name the place: plan.launches[3].kernel.
class JsonReader {
 public:
  template <class T>
  using Ref = T&;

  explicit JsonReader(const Json& json) : json_(&json) {}

  template <class T>
  void read(const char* key, T& v) {
    within(key, v);
  }
  template <class... T>
  void fields_of(const char* names, T&... values) {
    const std::vector<std::string> keys = names_of(names);
    if (!json_->is_object()) lies("is no object");
    for (const auto& item : json_->items()) {
      if (std::find(keys.begin(), keys.end(), item.key()) == keys.end())
        lies("has an unknown key '" + item.key() + "'");
    }
    size_t k = 0;
    (within(keys[k++], values), ...);
  }

 private:
  [[noreturn]] void lies(const std::string& what) const {
    throw Damaged((path_.empty() ? "the text" : path_.substr(1)) + " " + what);
  }

  template <class T>
  void at(const std::string& step, const Json& json, T& v) {
    const Json* const saved = json_;
    const size_t length = path_.size();
    json_ = &json;
    path_ += step;
    value(v);
    path_.resize(length);
    json_ = saved;
  }
  template <class T>
  void within(const std::string& key, T& v) {
    const auto found = json_->find(key);
    if (found == json_->end()) lies("has no '" + key + "'");
    at("." + key, *found, v);
  }

  template <class T>
  void value(T& v) {
    if constexpr (std::is_same_v<T, double>) {
      if (json_->is_string()) {
        const std::string text = json_->get<std::string>();
        if (text != "nan" && text != "inf" && text != "-inf") lies("is no number");
        v = std::strtod(text.c_str(), nullptr);
        return;
      }
      if (!json_->is_number()) lies("is no number");
      v = json_->get<double>();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json_->is_boolean()) lies("is neither true nor false");
      v = json_->get<bool>();
    } else if constexpr (std::is_enum_v<T>) {
      if (!json_->is_string()) lies("is no name");
      const std::string text = json_->get<std::string>();
      for (uint64_t i = 0; i < EnumSize<T>::value; i++) {
        if (text_of(T(i)) == text) return v = T(i), void();
      }
      lies("is an unknown name: '" + text + "'");
    } else if constexpr (std::is_integral_v<T>) {
      if (!json_->is_number_integer()) lies("is no whole number");
      const int64_t whole = json_->get<int64_t>();
      v = T(whole);
      if (int64_t(v) != whole) lies("is too large");
    } else {
      fields(*this, v);
    }
  }
  void value(std::string& v) {
    if (json_->is_object() && json_->size() == 1 && json_->contains("bytes")) {
      within("bytes", v);
      v = from_hex(v);
      return;
    }
    if (!json_->is_string()) lies("is no text");
    v = json_->get<std::string>();
  }
  template <class T>
  void value(std::vector<T>& v) {
    if (!json_->is_array()) lies("is no list");
    v.resize(json_->size());
    for (size_t i = 0; i < v.size(); i++) at(str("[", i, "]"), (*json_)[i], v[i]);
  }
  void value(Launch& launch) {
    if (!json_->is_object() || json_->size() != 1) lies("is no launch");
    const Json& held = json_->begin().value();
    const std::string kind = json_->begin().key();
    if (kind == kLaunches[0]) return at("." + kind, held, launch.emplace<KernelLaunch>());
    if (kind == kLaunches[1]) return at("." + kind, held, launch.emplace<ExternLaunch>());
    lies("is a launch of an unknown kind: '" + kind + "'");
  }
  void value(loop::Kernel& k) {
    std::vector<std::string> lines;
    value(lines);
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    try {
      k = loop::parse_kernel(text);
    } catch (const Error& e) {
      lies(str("is no kernel: ", e.what()));
    }
  }

  const Json* json_;
  std::string path_;
};

}  // namespace
}  // namespace artifact

std::string print_artifact(const Plan& plan, const std::vector<Constant>& constants) {
  std::vector<Constant> shown = constants;
  for (Constant& c : shown) c.bytes = artifact::to_hex(c.bytes);
  artifact::JsonWriter out;
  artifact::Json all;
  all["format"] = artifact::kFormat;
  all["plan"] = out.json(plan);
  all["constants"] = out.json(shown);
  return all.dump(1) + "\n";
}

Artifact parse_artifact(const std::string& text) {
  artifact::Json json;
  try {
    json = artifact::Json::parse(text);
  } catch (const artifact::Json::exception& e) {  // its text names line and column
    throw artifact::Damaged(e.what());
  }
  Artifact a;
  artifact::JsonReader in(json);
  std::string format;
  in.read("format", format);
  if (format != artifact::kFormat) {
    throw artifact::Damaged("its format is '" + format + "', this build reads '" + artifact::kFormat + "'");
  }
  in.read("plan", a.plan);
  in.read("constants", a.constants);
  for (Constant& c : a.constants) c.bytes = artifact::from_hex(c.bytes);
  a.codes = no_codes(a.plan);
  check_artifact(a);
  return a;
}

}  // namespace lutra
