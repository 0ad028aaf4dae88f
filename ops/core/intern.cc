// Strings that live as long as the process.
#include "ops/core/intern.h"

#include <mutex>
#include <unordered_set>

namespace lutra {

const char* intern(const std::string& text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> strings;
  std::lock_guard<std::mutex> lock(mutex);
  return strings.insert(text).first->c_str();
}

}  // namespace lutra
