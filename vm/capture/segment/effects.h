// The effects of a segment after its run, as data: results, writes of tables and variables, gradients and histories.
// They only refer to inputs and outputs of the graph, and to registers, constants and symbols of the guards. run.cc
// applies them in a Lua state; effects_text.cc has the text form.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ops/defs/op.h"

namespace lutra {

// A recipe for a value in the effects of a segment.
struct Recipe {
  enum Kind : uint8_t {
    kNil,
    kFalse,
    kTrue,
    kConstant,
    kTensorOut,
    kItem,
    kTensorIn,
    kRegister,
    kSymbol,
    kTable,
    kClosure,
    kText,
    kResume
  };
  static constexpr int kKinds = kResume + 1;
  Kind kind = kNil;
  // Index of the constant, output (kItem: its element), input, register, symbol, fresh table, closure or text, or
  // resume.
  int index = 0;
};

struct FreshTable {
  int array_size = 0, hash_size = 0;
  Recipe maker;  // a function that makes it from its template; kNil: made with these sizes
  std::vector<std::pair<Recipe, Recipe>> items;  // key, value; for the key nil see make_room
  Recipe metatable;
};

// A variable of a fresh closure: an upvalue of another function, or one of its own with this value.
struct FreshVariable {
  Recipe function;  // kNil: its own
  int index = 0;
  Recipe value;
};
struct FreshClosure {
  Recipe around;               // the enclosing function, whose environment it has
  std::vector<unsigned> path;  // path of child constants from that function's prototype, see ChildPath
  std::vector<FreshVariable> variables;
};

// A string or 64-bit integer: the result of a function for the values, or (kNil) the joined values. It refers only to
// earlier ones.
struct FreshText {
  Recipe function;
  std::vector<Recipe> args;
};

struct TableWrite {
  Recipe table, key, value;  // for the key nil see make_room
};
struct MetatableWrite {
  Recipe table, metatable;
};
struct UpvalueWrite {
  Recipe function;
  int index = 0;
  Recipe value;
};
// A write of a slot of a frame that the segment leaves, and that a closure shares (OpenFrame).
struct SlotWrite {
  int place = 0;
  Recipe value;
};
struct GradWrite {
  int input = 0;
  Recipe value;
};
// The gradient of a leaf that the segment has made.
struct OutputGrad {
  int output = 0;
  Recipe value;
};
// A hook that a backward outside calls with the gradient of an output or an input.
struct LeftHook {
  Recipe tensor, function;
};
// A call that made a view. Its first argument, the viewed tensor, is None here.
struct ViewCall {
  OpId op = OpId::kCount;
  Args args;
};
// An output that is a view of an input or of another output. The tape must know of writes through either of them.
struct ViewOutput {
  int output = 0;
  Recipe base;                  // kTensorIn, kTensorOut, or kNil if nothing else uses it
  bool recorded = false;        // the view was made in grad mode
  bool symbolic = false;        // its calls have sizes that only the run knows, so `calls` is empty
  bool complex = false;         // it is made from a complex view of the base, which nothing else uses
  std::vector<ViewCall> calls;  // in the order in which they were made
};
// An input that a write has given the history of an output, its last value.
struct HistoryWrite {
  int input = 0, output = 0;
};
// An output whose backward raises an error, with its message.
struct RefusedOutput {
  int output = 0;
  std::string why;
  std::vector<Recipe> reached;  // inputs, and leaves that the segment made, to which its history leads
  Recipe read{};  // the tensor that the op reads and the graph has written since; else nil; in `why`, a capture's
  std::string op{};
  int writes = 0;
};
// The number of draws of the segment from math.random, since it called math.randomseed with `seed` (kNil: it did not).
// function: either; kNil if neither was called.
struct Draws {
  Recipe function;
  int count = 0;
  Recipe seed{};
};
// An input whose requires_grad during the run differs from the value before or after it.
struct RequiresGradWrite {
  int input = 0;
  bool recorded = false;  // its value during the run: a history leads to it
  bool value = false;     // its value after the run
};

struct Effects {
  std::vector<FreshTable> tables;
  std::vector<FreshClosure> closures;
  std::vector<FreshText> texts;
  std::vector<Recipe> results;
  std::vector<TableWrite> table_writes;
  std::vector<MetatableWrite> metatable_writes;
  std::vector<UpvalueWrite> upvalue_writes;
  std::vector<SlotWrite> slot_writes;
  std::vector<GradWrite> grad_writes;
  std::vector<RequiresGradWrite> requires_grad_writes;
  std::vector<int> written;       // inputs that the graph writes to
  std::vector<int> leaf_outputs;  // outputs that are leaves and require grad
  std::vector<ViewOutput> view_outputs;
  std::vector<int> hidden_bases;  // outputs that are views of tensors that nothing else uses
  std::vector<OutputGrad> output_grads;
  std::vector<Recipe> retained;  // outputs and inputs that retain their gradient
  std::vector<LeftHook> hooks;   // in the order in which they are registered
  Draws draws;
  Recipe seed;  // set before the run: a constant, a register or a symbol; kNil: none
  std::vector<HistoryWrite> history_writes;
  std::vector<RefusedOutput> refused_outputs;
  bool grad_mode = true;  // at the end
  bool sets_grad_mode = false;
  int autocast = kNoAutocast;  // at the end, packed, if it has changed
  static constexpr int kNoAutocast = -1;
};

// Prints the text form. Print, parse, print is the identity.
std::string print(const Effects& effects);
// Parses the text form. Throws an error with the line if the text is malformed.
Effects parse_effects(const std::string& text);

// The number of objects of each kind that effects may refer to.
struct EffectPlaces {
  size_t inputs = 0, outputs = 0, registers = 0, constants = 0, symbols = 0, resumes = 0;
};
// Returns an empty string, or an error about a reference to an object that does not exist.
std::string verify(const Effects& effects, const EffectPlaces& places);

}  // namespace lutra
