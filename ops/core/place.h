// The line of the user's program that launches work on a device. Errors that are reported late name it.
#pragma once

namespace lutra {

struct Place {
  char file[256] = {};
  int line = 0;

  void set(const char* name, int at);  // keeps the end of a long name
};

// set_place installs the function that finds the line that the program runs now; it returns false if unknown. It is
// called at launches without a place of their own.
void set_place(bool (*where)(Place& place));
bool place_now(Place& place);

// A scope in which launches of this thread come from this place (null: from the program's own).
class PlaceScope {
 public:
  PlaceScope(const char* file, int line);
  ~PlaceScope();
  PlaceScope(const PlaceScope&) = delete;

 private:
  const char* file_;
  int line_;
};

}  // namespace lutra
