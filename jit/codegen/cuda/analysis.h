// What becomes of a kernel's loops on a GPU, chosen from the kernel, hints of its integer arguments and the machine.
// The choice decides how fast a kernel is, never what it gives.
//
// A kernel is a nest of independent loops around a body. Flat: the body has no loops that threads share, one thread
// takes V elements of the innermost loop of the nest. Group: the body is run by T threads together, which share its
// lanes and vector loops: element i belongs to thread (i / V) % T, everything else is done by all of them alike.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "jit/device/machine.h"
#include "jit/loop/walk.h"

namespace lutra::cuda {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

enum class Along : uint8_t { kUniform, kUnit, kOther };

inline constexpr int kTile = 32, kTileRows = 8;  // a tile's side, and how many of its rows the threads are at a time

struct Mapping {
  // The nest, outermost first, and the instructions without effect that stand before each of its loops and are done by
  // every thread.
  std::vector<const loop::Loop*> nest;
  std::vector<const loop::Inst*> prefix;
  bool prefix_checks = false;  // so a nest whose inner loops are empty is run all the same
  const std::vector<loop::Stmt>* body = nullptr;

  bool flat = false;
  bool reread = false;      // a shared loop loads what its own iteration has stored: loads stay where they are
  bool columns = false;     // the threads of a group are apart by 32 in a block; 32 groups side by side
  int threads = 1;          // T
  int elements = 1;         // V
  int block = 256;          // threads of a block
  int resident = 0;         // R: rows of up to T*V*R elements have a path that reads them once; 0: there is none
  bool by_rows = false;     // flat: blocks lie along the innermost loop, the others are the grid's other dimensions
  int apart = 1;            // flat, V = 1: elements of a thread, a block's threads apart from each other
  int tile = -1;            // flat: which loop of the nest forms tiles with the innermost; -1: none
  bool exact = false;       // the likely row has T*V*R elements: only such rows take that path
  int batch = 0;            // rows that do not stay in registers: packs of a thread that are loaded ahead, at most
  int blocks = 1;           // of a multiprocessor at a time, so many registers a thread may have
  bool groups_fill = true;  // every block's groups exist whatever the arguments
  int groups() const { return block / threads; }
};

// told: where what was weighed is told, a line each.
Mapping map_kernel(const loop::Kernel& kernel, std::span<const int64_t> hints, const Machine& machine,
                   std::string* told = nullptr);

// How an access walks when the loop's variable does; depends: values that differ from iteration to iteration.
Along along(const loop::Access& a, int32_t loop_id, const std::vector<bool>& depends);
// By value id: defined within the body.
std::vector<bool> defined_in(const loop::Kernel& kernel, const std::vector<loop::Stmt>& body);
// The loads and stores of a loop's own body that take V neighbouring elements as one access.
bool is_packed(const loop::Inst& in, const loop::Loop& l, const std::vector<bool>& inside);
// Lanes loops, and vector loops without them: such a one is run by all threads alike, which share the lanes loops.
bool is_shared(const loop::Loop& l);
// Loops of a body that the threads of a group share, however deep.
std::vector<const loop::Loop*> shared_loops(const std::vector<loop::Stmt>& body);
// Lanes of a lanes loop's accumulators, 0 where it feeds none.
int lanes_of(const loop::Kernel& kernel, const loop::Loop& l);
// Flat: loads that walk memory along loop d of the nest while the threads are along the innermost: through a tile.
bool is_transposed(const loop::Inst& in, const Mapping& m, size_t d);
// The text of an access with the variable of the loop as "@": equal for accesses to the same place.
std::string place_key(const loop::Access& a, int32_t loop_id);

}  // namespace lutra::cuda
