// In: a guard of a setting of the thread. Out: the setting's present value. The table is made of guard.def's GUARD_MODE
// rows.
#include "ops/core/current_device.h"
#include "ops/defs/autocast.h"
#include "ops/defs/call.h"
#include "vm/guard/program.h"

namespace lutra {
namespace {

struct SettingRow {
  GuardOp op;
  int (*now)();
  std::string (*text)();
};
const SettingRow kSettings[] = {
#define GUARD_LOAD(name)
#define GUARD_CHECK(name, kind, helper)
#define GUARD_MODE(name, kind, now, words) \
  {GuardOp::name##Check, [] { return int(now); }, []() -> std::string { return words; }},
#include "vm/guard/guard.def"
};

const SettingRow* find(GuardOp op) {
  for (const SettingRow& row : kSettings) {
    if (row.op == op) return &row;
  }
  return nullptr;
}

}  // namespace

bool is_setting(GuardOp op) { return find(op); }
int setting(GuardOp op) { return find(op)->now(); }
std::string setting_text(GuardOp op) { return find(op)->text(); }

}  // namespace lutra
