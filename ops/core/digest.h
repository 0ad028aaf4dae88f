// Digests of bytes by XXH3 (xxhash), for names of files and for checksums against damage on disk. They don't protect
// against forgery.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lutra {

uint64_t checksum(std::string_view bytes);
// Returns 32 hexadecimal digits.
std::string digest(std::string_view bytes);

}  // namespace lutra
