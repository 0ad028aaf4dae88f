// The settings installed on a thread, and those of the process. See settings.h.
#include "ops/core/settings.h"

namespace lutra {

constinit thread_local Settings* installed_settings = nullptr;

Settings& process_settings() {
  static Settings* all = new Settings;  // background threads may outlive static objects
  return *all;
}

}  // namespace lutra
