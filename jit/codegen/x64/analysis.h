// Analyses a kernel before the emitter runs: types of values, vector length, costs.
#pragma once
#include <vector>

#include "jit/loop/walk.h"

namespace lutra::x64 {

struct Analysis {
  Analysis(const loop::Kernel& k, int most_lanes);  // most_lanes: 32-bit lanes of a register
  std::vector<DType> types;                         // by value id
  std::vector<const loop::Loop*> loops;             // by loop id
  std::vector<const loop::Inst*> parameters;        // one kScalar or kIntArg for each different parameter
  int lanes;  // for 32-bit types; half of most_lanes if vector loops need 64-bit lanes

  int cost(const loop::Loop& l) const;      // approximate number of instructions in one iteration
  bool gathers(const loop::Loop& l) const;  // it has an access that is neither unit-stride nor uniform in l
  // tile_loop returns the loop to run in tiles for a vector loop whose loads go along that outer loop; null: none.
  // is_column returns true for the loads that are read through the tiles.
  const loop::Loop* tile_loop(const loop::Loop& vector_loop) const;
  bool is_column(const loop::Inst& in) const;
  // Returns true if only stores read the value.
  bool is_stored_only(const loop::Inst& in) const { return in.id >= 0 && !computed_with_[size_t(in.id)]; }
  // Returns true if a value is a vector loop's index that is only compared with values uniform in that loop. These
  // comparisons compare 32-bit distances, so the index itself needs no register.
  bool is_lane_index(int32_t id) const { return id >= 0 && lane_index_[size_t(id)]; }
  bool compares_lanes(const loop::Inst& in) const;

 private:
  void find_lane_indices(const loop::Loop& l);
  void find_tiles(const std::vector<loop::Stmt>& body, std::vector<const loop::Loop*>& nest);
  const loop::Loop* tiling(const std::vector<const loop::Loop*>& nest) const;
  void walk(const std::vector<loop::Stmt>& body, const loop::Loop* vector_loop);
  void inst(const loop::Inst& in, const loop::Loop* vector_loop);
  bool gathered(const loop::Inst& in, const loop::Loop& vector_loop) const;
  const int wide_lanes_;
  std::vector<std::pair<const loop::Loop*, const loop::Loop*>> tiles_;  // vector loop, loop in tiles
  std::vector<const loop::Inst*> columns_;
  std::vector<bool> lane_index_;               // by value id
  std::vector<bool> computed_with_;            // by value id: an instruction other than a store reads it
  std::vector<const loop::Loop*> defined_in_;  // by value id: the vector loop around its definition
};

bool is_small(DType t);  // 1 or 2 bytes: there is no gather instruction for it

}  // namespace lutra::x64
