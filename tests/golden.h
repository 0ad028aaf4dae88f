// Compares a text that a test has made with its golden file under tests/. If LUTRA_BLESS=1 is set in the environment,
// it rewrites the file instead; read the diff before committing it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>

namespace lutra {

// A path of the tree (tests/main.cc).
std::string source_path(const std::string& relative);

inline std::string read_text(const std::string& relative) {
  std::ifstream in(source_path(relative), std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return in ? text.str() : std::string();
}

// `name` is a path under tests/, for example "bytecode/print.txt".
inline void check_golden(const std::string& name, const std::string& text) {
  const std::string path = "tests/" + name;
  const char* bless = std::getenv("LUTRA_BLESS");
  if (bless && std::string(bless) == "1") {
    std::filesystem::create_directories(std::filesystem::path(source_path(path)).parent_path());
    std::ofstream(source_path(path), std::ios::binary) << text;
    SUCCEED("blessed " + path);
    return;
  }
  INFO("golden file " << path << " (LUTRA_BLESS=1 rewrites it)");
  CHECK(read_text(path) == text);
}

}  // namespace lutra
