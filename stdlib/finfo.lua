-- finfo(dtype): what a floating point dtype can say: bits, eps, max, min, tiny, smallest_normal, resolution.
local lt, use = ...
local errors = use "errors"

-- Bits, bits of the fraction, the largest exponent, decimal digits.
local rows = {float16 = {16, 10, 15, 3}, bfloat16 = {16, 7, 127, 2}, float32 = {32, 23, 127, 6}, float64 = {64, 52, 1023, 15}}

return function(dtype)
  local row = rows[dtype == nil and "float32" or dtype]
  if not row then errors.wrong("finfo", "dtype", "a floating point dtype", dtype) end
  local bits, fraction, exponent, digits = unpack(row)
  local eps, normal = 2 ^ -fraction, 2 ^ (1 - exponent)
  local most = (2 - eps) * 2 ^ exponent
  return {dtype = dtype or "float32", bits = bits, eps = eps, max = most, min = -most, tiny = normal, smallest_normal = normal,
          resolution = 10 ^ -digits}
end
