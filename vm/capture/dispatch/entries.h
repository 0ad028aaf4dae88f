// The entries of a point and the values of a call in, the entry whose guards hold out.
#pragma once
#include <memory>

#include "vm/capture/dispatch/compiled_proto.h"
#include "vm/guard/program.h"

struct lua_State;

namespace lutra {

// The values of a portal call: stack 1 .. nargs, nslots of them slots; the function at `self`.
struct CallValues {
  int nslots = 0, nargs = 0, self = 0;
};

struct Lookup {
  std::shared_ptr<Entry> entry;  // the hit; null on a miss
  GuardValues values;
  bool no_room = false;  // an entry's guards could not run: the original code must

  // Takes memory for the values, and gives it back.
  explicit Lookup(GuardValues& spare) : values(std::move(spare)), spare_(&spare) {}
  Lookup(Lookup&& o) noexcept
      : entry(std::move(o.entry)),
        values(std::move(o.values)),
        no_room(o.no_room),
        spare_(std::exchange(o.spare_, nullptr)) {}
  ~Lookup() {
    if (!spare_) return;
    values.tensors.forget();
    *spare_ = std::move(values);
  }

 private:
  GuardValues* spare_;
};

// On a miss, `missed` is the entry that was hit or made last and the step that failed; null where there is none.
Lookup find_entry(lua_State* L, GuardValues& spare, ProtoPoint& point, const CallValues& call,
                  std::shared_ptr<Entry>* missed, int* failed);
// Entries of the point have gone, or have other guards.
void forget_tree(ProtoPoint& point);
void forget_entries(lua_State* L, ProtoPoint& point);

}  // namespace lutra
