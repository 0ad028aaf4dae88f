// Builds element functions.
#include "jit/lower/element_function.h"

#include "ops/core/error.h"

namespace lutra {

DType value_type(DType t) { return is_complex(t) ? t : info(t).carrier; }

namespace {

FunctionStmt stmt(FunctionStmt::Kind kind, DType type) {
  FunctionStmt s;
  s.kind = kind, s.type = value_type(type);
  return s;
}

}  // namespace

Index parameters(size_t rank) {
  Index index;
  index.reserve(rank);
  for (size_t d = 0; d < rank; d++) index.push_back(Affine::loop(int32_t(d)));
  return index;
}

bool is_same_index(const Affine* places, size_t n) {
  for (size_t d = 0; d < n; d++) {
    const Affine& a = places[d];
    if (a.terms.size() != 1 || a.terms[0].is_value || a.terms[0].id != int32_t(d)) return false;
    if (!identical(a.terms[0].coef, 1) || !identical(a.offset, 0)) return false;
  }
  return true;
}

ElementFunction at_index(const ElementFunction& f, size_t rank, const Index& index) {
  ElementFunction moved = f;
  moved.rank = int32_t(rank);
  for (Affine& at : moved.places) {
    at = substitute(at, [&](const Affine::Term& t) { return t.is_value ? Affine::value(t.id) : index[size_t(t.id)]; });
  }
  return moved;
}

int32_t FunctionBuilder::add(FunctionStmt s) {
  function.stmts.push_back(std::move(s));
  return int32_t(function.stmts.size() - 1);
}

int32_t FunctionBuilder::op(loop::Op op, DType type, int32_t a, int32_t b, int32_t c, int32_t arg) {
  FunctionStmt s = stmt(FunctionStmt::kOp, type);
  s.op = op, s.a = a, s.b = b, s.c = c, s.arg = arg;
  return add(s);
}

int32_t FunctionBuilder::constant(DType type, double v) {
  FunctionStmt s = stmt(FunctionStmt::kNumber, type);
  s.number = v;
  return add(s);
}

int32_t FunctionBuilder::constant_int(DType type, int64_t v) {
  FunctionStmt s = stmt(FunctionStmt::kInteger, type);
  s.integer = v;
  return add(s);
}

int32_t FunctionBuilder::scalar(int32_t expr, DType type) {
  FunctionStmt s = stmt(FunctionStmt::kScalar, type);
  s.type = type, s.arg = expr;
  return add(s);
}

int32_t FunctionBuilder::int_value(SymInt v) {
  FunctionStmt s = stmt(FunctionStmt::kSize, DType::kInt64);
  s.size = v;
  return add(s);
}

int32_t FunctionBuilder::cast(int32_t value, DType type) {
  if (function.stmts[size_t(value)].type == value_type(type)) return value;
  FunctionStmt s = stmt(FunctionStmt::kCast, type);
  s.a = value;
  return add(s);
}

int32_t FunctionBuilder::index(const Affine& at) {
  FunctionStmt s = stmt(FunctionStmt::kIndex, DType::kInt64);
  s.place = int32_t(function.places.size()), s.places = 1;
  function.places.push_back(at);
  return add(s);
}

int32_t FunctionBuilder::part(int32_t value, int which) {
  FunctionStmt s = stmt(FunctionStmt::kPart, info(function.stmts[size_t(value)].type).carrier);
  s.a = value, s.arg = which;
  return add(s);
}

int32_t FunctionBuilder::operand(size_t k, DType type, const Index& index) {
  FunctionStmt s = stmt(FunctionStmt::kOperand, type);
  s.arg = int32_t(k);
  s.place = int32_t(function.places.size()), s.places = int32_t(index.size());
  function.places.insert(function.places.end(), index.begin(), index.end());
  return add(s);
}

void FunctionBuilder::check(int32_t value, SymInt bound, int32_t dim) {
  FunctionStmt s;
  s.kind = FunctionStmt::kCheck;
  s.a = value, s.size = bound, s.arg = dim;
  add(s);
}

int32_t FunctionBuilder::open(SymInt size, loop::LoopMode mode) {
  FunctionStmt s;
  s.kind = FunctionStmt::kOpen;
  s.size = size, s.mode = mode, s.arg = function.rank + loops_++, open_++;
  const int32_t id = s.arg;
  add(s);
  return id;
}

void FunctionBuilder::close() {
  FunctionStmt s;
  s.kind = FunctionStmt::kClose;
  open_--;
  add(s);
}

void FunctionBuilder::close_all() {
  while (open_ > 0) close();
}

void FunctionBuilder::store(const Affine& at, int32_t value) {
  FunctionStmt s;
  s.kind = FunctionStmt::kStore;
  s.a = value;
  s.place = int32_t(function.places.size()), s.places = 1;
  function.places.push_back(at);
  add(s);
}

}  // namespace lutra
