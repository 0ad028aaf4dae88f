// Digests of bytes by XXH3 (xxhash): names of files and checksums of what a disk may have damaged. They are no
// defence against somebody who forges.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lutra {

uint64_t checksum(std::string_view bytes);
// 32 hexadecimal digits.
std::string digest(std::string_view bytes);

}  // namespace lutra
