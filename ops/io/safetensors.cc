// A file has 8 bytes (the header's length, little endian), the header, and the elements. The header is
//   {"__metadata__": {"name": "text"}, "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
// Invariant: tensors are allocated only after every range was checked: within the file, without gap or overlap, and
// exactly as long as dtype and sizes require.
#include "ops/io/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "ops/core/error.h"
#include "ops/io/npy.h"

namespace lutra {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the format's own library

DType dtype_of(const ByteSource& in, const std::string& tensor, const json& text) {
  if (!text.is_string()) in.damaged("tensor '" + tensor + "' has no dtype");
  const DType dtype = dtype_from_safetensors_name(text.get<std::string>());
  if (dtype != DType::kNone) return dtype;
  fail("load: tensor '", tensor, "' of ", in.name(), " has elements of type ", text.dump(),
       ", for which there is no dtype");
}

struct Item {
  std::string name;
  DType dtype;
  std::vector<uint64_t> sizes;
  uint64_t begin, end;
};

// nlohmann keeps the last of equal keys, so duplicates are found while parsing.
json parse_header(const ByteSource& in, const std::string& text) {
  std::vector<std::set<std::string>> open;
  bool twice = false;
  const auto look = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end && !open.empty()) open.pop_back();
    if (event == json::parse_event_t::key) twice = twice || !open.back().insert(parsed.get<std::string>()).second;
    return true;
  };
  if (text.empty() || text[0] != '{') in.damaged("its header does not begin with {");
  json header = json::parse(text.begin(), text.end(), look, false);
  if (header.is_discarded() || !header.is_object()) in.damaged("its header is no JSON object");
  if (twice) in.damaged("its header has a name twice");
  return header;
}

Item read_item(const ByteSource& in, const std::string& name, const json& value) {
  const auto wrong = [&](const char* what) { in.damaged("tensor '" + name + "' has " + what); };
  if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets") ||
      value.size() != 3) {
    wrong("fields other than dtype, shape and data_offsets");
  }
  Item item{name, dtype_of(in, name, value["dtype"]), {}, 0, 0};
  const json &shape = value["shape"], &offsets = value["data_offsets"];
  const auto whole = [](const json& v) { return v.is_number_unsigned(); };
  if (!shape.is_array() || shape.size() > 64 || !std::all_of(shape.begin(), shape.end(), whole))
    wrong("no sound shape");
  if (!offsets.is_array() || offsets.size() != 2 || !std::all_of(offsets.begin(), offsets.end(), whole)) {
    wrong("no sound data_offsets");
  }
  for (const json& size : shape) item.sizes.push_back(size.get<uint64_t>());
  item.begin = offsets[0].get<uint64_t>(), item.end = offsets[1].get<uint64_t>();
  if (item.begin > item.end || item.end > in.left()) wrong("data_offsets outside of the file");
  return item;
}

void check_ranges(const ByteSource& in, std::vector<Item>& items) {
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t at = 0;
  for (const Item& item : items) {
    if (item.begin != at)
      in.damaged(str("tensor '", item.name, "' ", item.begin < at ? "overlaps another" : "follows a gap"));
    at = item.end;
  }
  if (at != in.left()) in.damaged(str("its tensors end at byte ", at, " of ", in.left()));
  for (const Item& item : items) {
    uint64_t bytes = size_of(item.dtype);
    for (const uint64_t size : item.sizes) {
      if (__builtin_mul_overflow(bytes, size, &bytes)) in.damaged("the sizes of tensor '" + item.name + "' overflow");
    }
    if (bytes != item.end - item.begin) {
      in.damaged(str("tensor '", item.name, "' has ", item.end - item.begin, " bytes, its sizes take ", bytes));
    }
  }
}

void read_metadata(const ByteSource& in, const json& value, Safetensors* out) {
  if (!value.is_object()) in.damaged("its __metadata__ is no object");
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) in.damaged("its __metadata__ holds more than strings");
    out->metadata.emplace_back(name, text.get<std::string>());
  }
}

// Sorts larger elements first, then by name, like the format's own library, so that every tensor is aligned.
std::vector<size_t> order_of(const Safetensors& content) {
  std::vector<size_t> order(content.tensors.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto &x = content.tensors[a], &y = content.tensors[b];
    const size_t m = size_of(x.second->dtype), n = size_of(y.second->dtype);
    return m != n ? m > n : x.first < y.first;
  });
  return order;
}

std::string header_text(const Safetensors& content, const std::vector<size_t>& order) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const auto& [name, text] : content.metadata) header["__metadata__"][name] = text;
  uint64_t at = 0;
  for (const size_t i : order) {
    const auto& [name, t] = content.tensors[i];
    auto& item = header[name];
    const char* type = info(t->dtype).safetensors_name;
    if (!*type) {
      fail("save: .safetensors files have no ", lutra::name(t->dtype), ": convert '", name, "' by x:to(dtype)",
           *info(t->dtype).numpy_name ? ", or save to .npz" : "");
    }
    item["dtype"] = type;
    item["shape"] = nlohmann::ordered_json::array();
    for (const SymInt& size : t->sizes) item["shape"].push_back(uint64_t(size.hint));
    item["data_offsets"] = {at, at + byte_count(t)};
    at += byte_count(t);
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail("save: names and texts of a .safetensors file are UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeader) fail("save: the names and texts are too many for a .safetensors file");
  return text;
}

}  // namespace

Safetensors load_safetensors(const std::string& path) {
  const InputFile file(path);
  FileSource in(file, 0, file.size(), "'" + path + "'");
  return read_safetensors(in);
}

Safetensors read_safetensors(ByteSource& in) {
  uint8_t raw[8];
  if (in.left() < sizeof raw) in.damaged("it is too short for a header");
  in.read(raw, sizeof raw);
  const uint64_t length = little_endian(raw, 8);
  if (length > in.left() || length > kMaxHeader) in.damaged("its header promises more than the file holds");
  std::string text(length, 0);
  in.read(text.data(), length);
  const json header = parse_header(in, text);
  Safetensors out;
  std::vector<Item> items;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      read_metadata(in, value, &out);
    } else {
      items.push_back(read_item(in, name, value));
    }
  }
  check_ranges(in, items);
  for (const Item& item : items) {
    const Tensor t = make_checked(in, item.sizes, item.dtype, item.end - item.begin);
    read_elements(in, t);
    out.tensors.emplace_back(item.name, t);
  }
  std::sort(out.tensors.begin(), out.tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

void save_safetensors(const std::string& path, const Safetensors& content) {
  const std::vector<size_t> order = order_of(content);
  const std::string text = header_text(content, order);
  std::string head;
  append_little(&head, text.size(), 8);
  head += text;
  AtomicFile out(path);
  out.write(head.data(), head.size());
  for (const size_t i : order) out.write(content.tensors[i].second->data(), byte_count(content.tensors[i].second));
  out.commit();
}

}  // namespace lutra
