// Lengths of lists that grow. In: a table of LuaJIT's, which is read only. Out: whether its length follows.
#pragma once
#include "vm/mirror/mirror.h"

namespace lutra {

// Whether the length of the table grows by one with each of n values that are set behind its end, one by one: there is
// room for them in its array, so that nothing moves, and LuaJIT's search for an end finds theirs. Of a list without
// holes that is so in any case, but to know that it has none takes a look at each item.
bool grows_in_place(const mirror::Tab* t, int64_t n);

}  // namespace lutra
