// Maps a kernel's loops to a GPU. In: the kernel, hints of its integer arguments, the machine. The mapping affects a
// kernel's speed, never its results.
//
// A kernel is a nest of independent loops around a body. Flat: the body has no loops that threads share; one thread
// takes V elements of the nest's innermost loop. Group: T threads run the body together and share its lanes and vector
// loops. Element i belongs to thread (i / V) % T; all threads do everything else alike.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "jit/device/machine.h"
#include "jit/loop/walk.h"

namespace lutra::cuda {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

enum class Along : uint8_t { kUniform, kUnit, kOther };

// The threads of a block that moves a tile: they handle kTileRows rows of kTileWidth elements at a time.
inline constexpr int kTileWidth = 32, kTileRows = 8;

struct Mapping {
  // The nest, outermost first, and the instructions without effect before each of its loops, which every thread runs.
  std::vector<const loop::Loop*> nest;
  std::vector<const loop::Inst*> prefix;
  bool prefix_checks = false;  // prefix has checks, so it runs even if the inner loops are empty
  const std::vector<loop::Stmt>* body = nullptr;

  bool flat = false;
  bool reread = false;   // a shared loop loads what its own iteration has stored, so its loads stay in place
  bool columns = false;  // the threads of a group are 32 apart in a block, and 32 groups are adjacent
  int threads = 1;       // T
  int elements = 1;      // V
  int block = 256;       // threads of a block
  int resident = 0;      // R: rows of up to T*V*R elements have a path that reads them once; 0: there is no such
                         // path
  bool by_rows = false;  // flat: blocks go along the innermost loop; the other loops are the grid's other dimensions
  int apart = 1;         // flat, V = 1: number of elements of a thread; they are as far apart as the block has
                         // threads
  int tile = -1;         // flat: the loop of the nest that forms tiles with the innermost one; -1: none
  int tile_side = kTileWidth;
  bool exact = false;       // the likely row has T*V*R elements; only such rows take the path that reads once
  int batch = 0;            // rows not in registers: the most packs of a thread that are loaded ahead
  int blocks = 1;           // on a multiprocessor at a time; limits the registers of a thread
  bool groups_fill = true;  // every group of every block exists, for all arguments
  int groups() const { return block / threads; }
};

// log: receives a line for each choice between mappings.
Mapping map_kernel(const loop::Kernel& kernel, std::span<const int64_t> hints, const Machine& machine,
                   std::string* log = nullptr);

// Returns how an access moves with the loop's variable. depends: values that differ from iteration to iteration.
Along along(const loop::Access& a, int32_t loop_id, const std::vector<bool>& depends);
// Returns, by value id, true if the value is defined within the body.
std::vector<bool> defined_in(const loop::Kernel& kernel, const std::vector<loop::Stmt>& body);
// Returns true for a load or store of a loop's own body that accesses V adjacent elements at once.
bool is_packed(const loop::Inst& in, const loop::Loop& l, const std::vector<bool>& inside);
// Returns true for lanes loops, and for vector loops without lanes loops inside. All threads run a vector loop with
// lanes loops alike, and share the lanes loops.
bool is_shared(const loop::Loop& l);
// Returns the loops of a body that the threads of a group share, at any depth.
std::vector<const loop::Loop*> shared_loops(const std::vector<loop::Stmt>& body);
// Returns the lanes of the accumulators that a lanes loop feeds; 0 if it feeds none.
int lanes_of(const loop::Kernel& kernel, const loop::Loop& l);
// Flat: returns true for a load that goes along loop d of the nest, while the threads go along the innermost loop. Such
// a load goes through a tile.
bool is_transposed(const loop::Inst& in, const Mapping& m, size_t d);
// Returns the text of an access, with "@" for the loop's variable. It is equal for accesses to the same place.
std::string place_key(const loop::Access& a, int32_t loop_id);

}  // namespace lutra::cuda
