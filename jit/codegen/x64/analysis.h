// What the emitter asks of a kernel before it begins: types of values, the vector length, costs.
#pragma once
#include <vector>

#include "jit/loop/walk.h"

namespace lutra::x64 {

struct Analysis {
  Analysis(const loop::Kernel& k, int most_lanes);  // most_lanes: 32-bit lanes of a register
  std::vector<DType> types;                         // by value id
  std::vector<const loop::Loop*> loops;             // by loop id
  std::vector<const loop::Inst*> parameters;        // kScalar and kIntArg, one for each different one
  int lanes;  // of 32-bit types; half of the most where vector loops need 64-bit lanes

  int cost(const loop::Loop& l) const;      // instructions of one iteration, roughly
  bool gathers(const loop::Loop& l) const;  // holds an access neither unit nor uniform in l
  // Loads that walk memory along an outer loop: the loop that is to run in tiles for this vector loop (null: none), and
  // which loads are read through the tiles.
  const loop::Loop* tile_loop(const loop::Loop& vector_loop) const;
  bool is_column(const loop::Inst& in) const;
  // Whether nothing takes its value but stores.
  bool is_stored_only(const loop::Inst& in) const { return in.id >= 0 && !computed_with_[size_t(in.id)]; }
  // Whether a value is a vector loop's index that nothing takes but comparisons with what is uniform in that loop:
  // these compare distances in 32 bits, and the index itself needs no register.
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
  std::vector<bool> computed_with_;            // by value id: something but a store takes it
  std::vector<const loop::Loop*> defined_in_;  // by value id: the vector loop around its definition
};

// Loops of an element that an access neither walks by ones nor stays on.
bool is_small(DType t);  // 1 or 2 bytes: no gather instruction

}  // namespace lutra::x64
