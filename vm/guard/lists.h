// The lengths of lists that grow. In: a table of LuaJIT's, which is only read. Out: whether its length can be
// predicted.
#pragma once
#include "vm/mirror/mirror.h"

namespace lutra {

// Returns whether the table's length grows by one with each of n values that are set one by one behind its end. It does
// if the array part has room for them, so that nothing moves, and LuaJIT's search for a border finds each new end. A
// list without holes always grows so, but to know that it has no holes every item must be checked.
bool grows_in_place(const mirror::Tab* t, int64_t n);

}  // namespace lutra
