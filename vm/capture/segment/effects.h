// What a segment leaves behind after its run, as data: values that it returns, writes of tables and variables,
// gradients and histories. It names places only: inputs and outputs of the graph, registers, constants and symbols of
// the guards. run.cc does it in a Lua state; its text form is that of effects_text.cc.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ops/defs/op.h"

namespace lutra {

// How a value that the segment leaves behind is made.
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
  // Constant, output (kItem: its element), input, register, place of the symbol, fresh table, closure or text, resume.
  int index = 0;
};

struct FreshTable {
  int array_size = 0, hash_size = 0;
  Recipe maker;                                  // a function that makes it from its template; kNil: of these sizes
  std::vector<std::pair<Recipe, Recipe>> items;  // key, value; of the key nil: see make_room
  Recipe metatable;
};

// A variable of a fresh closure: that of another function, or one of its own with this value.
struct FreshVariable {
  Recipe function;  // kNil: its own
  int index = 0;
  Recipe value;
};
struct FreshClosure {
  Recipe around;               // the function that it comes from, whose environment it has
  std::vector<unsigned> path;  // which child of a child ... of that one's prototype it is: constants, see ChildPath
  std::vector<FreshVariable> variables;
};

// A string or an integer of 64 bits: what a function gives for the values, or (kNil) the values joined. It names
// earlier ones only.
struct FreshText {
  Recipe function;
  std::vector<Recipe> args;
};

struct TableWrite {
  Recipe table, key, value;  // of the key nil: see make_room
};
struct MetatableWrite {
  Recipe table, metatable;
};
struct UpvalueWrite {
  Recipe function;
  int index = 0;
  Recipe value;
};
// A slot of a frame that the segment leaves, which a closure has as a variable (OpenFrame).
struct SlotWrite {
  int place = 0;
  Recipe value;
};
struct GradWrite {
  int input = 0;
  Recipe value;
};
// The gradient of a leaf that the segment made.
struct OutputGrad {
  int output = 0;
  Recipe value;
};
// A function that a backward outside calls with the gradient of an output or an input.
struct LeftHook {
  Recipe tensor, function;
};
// A call that made a view; its first argument is what it was called on, and None here.
struct ViewCall {
  OpId op = OpId::kCount;
  Args args;
};
// An output that is a view of an input or of another output: writes through either must be known to the tape.
struct ViewOutput {
  int output = 0;
  Recipe base;                  // kTensorIn, kTensorOut, or kNil where nothing else sees it
  bool recorded = false;        // it was made in grad mode
  bool symbolic = false;        // its calls have sizes that only the run knows, so they are not here
  bool complex = false;         // it begins at a complex view of the base, which nothing else sees
  std::vector<ViewCall> calls;  // the first one that was made comes first
};
// An input that a write has given a history: that of an output, its last value.
struct HistoryWrite {
  int input = 0, output = 0;
};
// An output that backward refuses, with its message.
struct RefusedOutput {
  int output = 0;
  std::string why;
  std::vector<Recipe> reached;  // inputs and made leaves that its history leads to
  Recipe read{};                // else nil: what the op reads, and the graph has written since; in `why`, a capture's
  std::string op{};
  int writes = 0;
};
// What the segment has drawn of math.random.
struct Draws {
  Recipe function;
  int count = 0;
};
// An input that the run's tape sees as another one than it was or becomes.
struct RequiresGradWrite {
  int input = 0;
  bool recorded = false;  // a history leads there
  bool value = false;     // after the run
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
  std::vector<int> written;       // inputs that the graph writes
  std::vector<int> leaf_outputs;  // outputs that are leaves requiring grad
  std::vector<ViewOutput> view_outputs;
  std::vector<int> hidden_bases;  // outputs that are views of what nothing else sees
  std::vector<OutputGrad> output_grads;
  std::vector<Recipe> retained;  // outputs and inputs that keep their gradient
  std::vector<LeftHook> hooks;   // in the order in which they are registered
  Draws draws;
  Recipe seed;  // before the run: a constant, a register or a symbol; kNil: none
  std::vector<HistoryWrite> history_writes;
  std::vector<RefusedOutput> refused_outputs;
  bool grad_mode = true;  // at the end
  bool sets_grad_mode = false;
  int autocast = kNoAutocast;  // at the end, packed, where that is another one
  static constexpr int kNoAutocast = -1;
};

// Print, parse, print is the identity.
std::string print(const Effects& effects);
// Throws an error with its line where the text is none.
Effects parse_effects(const std::string& text);

// How many of each thing there are that effects name.
struct EffectPlaces {
  size_t inputs = 0, outputs = 0, registers = 0, constants = 0, symbols = 0, resumes = 0;
};
// An empty string, or what names a place that does not exist.
std::string verify(const Effects& effects, const EffectPlaces& places);

}  // namespace lutra
