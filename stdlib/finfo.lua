-- finfo(dtype): the properties of a floating point dtype: bits, eps, max, min, tiny, smallest_normal, resolution.
local lt, use = ...
local errors = use "errors"

-- Bits, bits of the fraction, exponent of the smallest normal number, largest number, decimal digits.
local rows = {
  float8_e4m3fn = {8, 3, -6, 448, 0}, float8_e5m2 = {8, 2, -14, 57344, 0}, float16 = {16, 10, -14, 65504, 3},
  bfloat16 = {16, 7, -126, 0x1.fep127, 2}, float32 = {32, 23, -126, 0x1.fffffep127, 6},
  float64 = {64, 52, -1022, 0x1.fffffffffffffp1023, 15},
}

return function(dtype)
  local row = rows[dtype == nil and "float32" or dtype]
  if not row then errors.wrong("finfo", "dtype", "a floating point dtype", dtype) end
  local bits, fraction, exponent, most, digits = unpack(row)
  local normal = 2 ^ exponent
  return {dtype = dtype or "float32", bits = bits, eps = 2 ^ -fraction, max = most, min = -most, tiny = normal,
          smallest_normal = normal, resolution = 10 ^ -digits}
end
