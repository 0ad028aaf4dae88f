// What to do about a graph break or a recompile: rows of (beginning of a reason or a kind, advice).
#include "vm/capture/trace/hints.h"

#include <string_view>

namespace lutra {
namespace {

struct Hint {
  std::string_view key, text;
};

// Of breaks whose place gives none, by how the reason begins.
constexpr Hint kOfReason[] = {
    {"call of print", "print after the compiled function has returned, from what it returns"},
    {"call of file:", "read and write before or after the compiled function"},
    {"call of io.", "read and write before or after the compiled function"},
    {"call of os.clock", "measure around the compiled function; lt.profile(f) times its kernels"},
    {"call of os.time", "measure around the compiled function; lt.profile(f) times its kernels"},
    {"call of os.", "ask the system before the compiled function and pass the answer"},
    {"call of math.random", "draw it outside and pass the number, or draw a tensor: lt.rand"},
    {"call of table.sort", "sort tensors with x:sort(); sort lists outside of the compiled function"},
    {"call of error", "check arguments before the compiled function, or with assert"},
    {"call of coroutine.", "compile what the coroutine's body calls, not what makes it"},
    {"call of debug.", "look at the program outside of the compiled function"},
    {"call of require", "require modules at the top of the file"},
    {"call of load", "load files before the compiled function"},
    {"call of dofile", "load files before the compiled function"},
    {"call of save", "save after the compiled function has returned"},
    {"call of string.", "work on strings outside of the compiled function"},
    {"call of manual_seed", "seed before the compiled function"},
    {"call of randperm", "draw it before the compiled function and pass it"},
    {"call of register_hook", "register hooks before the compiled function"},
    {"call of a C function", "C functions run outside of graphs: call it before or after the compiled function"},
    {"error is called", "check arguments before the compiled function, or with assert"},
    {"a userdata is indexed", "files and other userdata are used outside of graphs"},
    {"setmetatable of a table made before", "give a table its metatable where it is made"},
    {"bytecode KCDATA", "numbers of 64 bits and other cdata are made outside of graphs"},
    {"variables that closures share", "make the closure outside of the compiled code"},
    {"a variable is shared by closures", "make the closures outside of the compiled code"},
    {"a closure may share a variable", "make the closure outside of the compiled code"},
    {"a tensor with hooks", "tensors with hooks stay outside of graphs"},
    {"a view with hooks is written", "write before the hook is registered, or write to a clone"},
    {"a tensor is written into a string", "make texts of tensors after the compiled function has returned"},
    {"a gradient is also held", "read the gradient through x.grad only"},
    {"the data of a tensor is replaced",
     "replace it outside of the compiled function, or write it in place: x:copy_(y)"},
    {"grad_fn is read", "look at grad_fn outside of the compiled function"},
    {"backward reaches a tensor made before",
     "compute the loss and call backward in one compiled function, without a break between"},
    {"pairs over a table that was written", "loop over it before it is written, or over a list"},
    {"pairs over a constructor's table", "give all fields in the constructor"},
    {"unpack of a long list", "pass the list itself"},
    {"a value that changes decides", "pass it as a tensor, or do what depends on it outside of the compiled function"},
};

// Else by the kind.
constexpr Hint kOfKind[] = {
    {"c_function", "C functions run outside of graphs: call it before or after the compiled function"},
    {"host_effect", "an effect outside of the graph: do it before or after the compiled function"},
    {"closure", "make the closure outside of the compiled code"},
    {"budget", "compile the functions that it calls, each by itself"},
    {"loop_budget", "the loop's body is compiled by itself; one op over all elements is faster"},
    {"data", "keep values that steer Lua code out of the graph"},
    {"backward", "compute the loss and call backward in one compiled function, without a break between"},
    {"unsupported", "this instruction runs as it is: move it before or after the tensor ops"},
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

std::string break_hint(const std::string& reason, const std::string& kind) {
  for (const Hint& h : kOfReason) {
    if (reason.rfind(h.key, 0) == 0) return std::string(h.text);
  }
  for (const Hint& h : kOfKind) {
    if (kind == h.key) return std::string(h.text);
  }
  return {};
}

std::string recompile_hint(const std::string& kind) {
  for (const Hint& h : kOfRecompile) {
    if (kind == h.key) return std::string(h.text);
  }
  return {};
}

}  // namespace lutra
