// Visits a kernel's instructions and loops in order, at any depth.
#pragma once
#include "jit/loop/loop.h"

namespace lutra::loop {

template <class F>
void for_each_inst(const std::vector<Stmt>& body, const F& f) {
  for (const Stmt& s : body) {
    if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s))
      for_each_inst((*l)->body, f);
    else
      f(std::get<Inst>(s));
  }
}
// Visits the body's own instructions, without those in inner loops.
template <class F>
void for_each_own_inst(const std::vector<Stmt>& body, const F& f) {
  for (const Stmt& s : body) {
    if (const auto* in = std::get_if<Inst>(&s)) f(*in);
  }
}
template <class F>
void for_each_loop(const std::vector<Stmt>& body, const F& f) {
  for (const Stmt& s : body) {
    const auto* l = std::get_if<std::unique_ptr<Loop>>(&s);
    if (!l) continue;
    f(**l);
    for_each_loop((*l)->body, f);
  }
}

}  // namespace lutra::loop
