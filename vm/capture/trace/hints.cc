// Advice about recompiles: rows of (kind, advice).
#include "vm/capture/trace/hints.h"

#include <string_view>

namespace lutra {
namespace {

struct Hint {
  std::string_view key, text;
};

constexpr Hint kOfRecompile[] = {
    {"size", "lt.compile(f, {dynamic = true}) or lt.mark_dynamic(x, dim) makes it a symbol from the start"},
    {"stride", "x:contiguous() before the call gives all tensors one layout"},
    {"rank", "each number of dimensions has an entry: x:view(...) before the call brings it to one"},
    {"dtype", "each dtype has an entry: x:to(dtype) before the call brings it to one"},
    {"device", "each device has an entry"},
    {"requires_grad", "x:detach() or x:requires_grad_() before the call brings it to one"},
    {"is_leaf", "leaves and results of ops have entries of their own: x:detach() makes a leaf"},
    {"hooks", "tensors with hooks run the original code"},
    {"grad", "a gradient that appears or goes has an entry: zero_grad{set_to_none = false} keeps it"},
    {"identity", "define the function once, outside of the call"},
    {"prototype", "define the function once, outside of the call"},
    {"alias", "pass different objects at each call, or the same at each"},
    {"metatable", "objects of several classes have an entry each"},
    {"nil", "what is sometimes nil has two entries: give it at each call, or at none"},
    {"type", "values of several types have an entry each: keep to one"},
    {"value",
     "what steers Lua code has an entry a value: pass it as a tensor, or keep it out of the compiled function"},
    {"field",
     "what steers Lua code has an entry a value: pass it as a tensor, or keep it out of the compiled function"},
    {"global",
     "what steers Lua code has an entry a value: pass it as a tensor, or keep it out of the compiled function"},
    {"upvalue",
     "what steers Lua code has an entry a value: pass it as a tensor, or keep it out of the compiled function"},
    {"length", "a list of each length has an entry: lt.stack makes one tensor of it"},
    {"keys", "tables of several sets of keys have an entry each: keep to one"},
    {"varargs", "each number of arguments has an entry: pass a list, or always as many"},
    {"relation",
     "a comparison of sizes or numbers steers Lua code: each outcome has an entry; lt.where chooses within the graph"},
    {"grad_mode", "call it always in the same grad mode: lt.no_grad(f) around all calls"},
    {"autocast", "call it always under the same autocast"},
    {"current_device", "each GPU has an entry"},
    {"default_device", "set the default device once, at the start"},
};

}  // namespace

std::string recompile_hint(const std::string& kind) {
  for (const Hint& h : kOfRecompile) {
    if (kind == h.key) return std::string(h.text);
  }
  return {};
}

}  // namespace lutra
