-- iinfo(dtype): the bits of an integer dtype, its smallest and its largest number. 64-bit ones are LuaJIT's integers.
local lt, use = ...
local errors, ffi = use "errors", require "ffi"

local function unsigned(v) return ffi.cast("uint64_t", v) end
local least = ffi.cast("int64_t", -2 ^ 63)
local rows = {uint64 = {64, unsigned(0), unsigned(0) - 1}, int64 = {64, least, -(least + 1)}}
for _, dtype in ipairs(lt._native.dtypes) do
  local u, text = dtype:match "^(u?)int(%d+)$"
  local bits = tonumber(text)
  if bits and bits < 64 then
    rows[dtype] = u == "u" and {bits, 0, 2 ^ bits - 1} or {bits, -2 ^ (bits - 1), 2 ^ (bits - 1) - 1}
  end
end

return function(dtype)
  local row = rows[dtype]
  if not row then errors.wrong("iinfo", "dtype", "an integer dtype", dtype) end
  return {dtype = dtype, bits = row[1], min = row[2], max = row[3]}
end
