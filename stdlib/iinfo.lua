-- iinfo(dtype): the bits of an integer dtype, its smallest and its largest number; those of int64 are LuaJIT's 64-bit integers.
local lt, use = ...
local errors = use "errors"

local least = require("ffi").cast("int64_t", -2 ^ 63)
local rows = {uint8 = {8, 0, 255}, int8 = {8, -128, 127}, int16 = {16, -32768, 32767}, int32 = {32, -2147483648, 2147483647},
              int64 = {64, least, -(least + 1)}}

return function(dtype)
  local row = rows[dtype]
  if not row then errors.wrong("iinfo", "dtype", "an integer dtype", dtype) end
  return {dtype = dtype, bits = row[1], min = row[2], max = row[3]}
end
