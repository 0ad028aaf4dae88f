-- linalg: the ops that PyTorch keeps in that namespace, as plain fields that hold the native functions themselves.
local lt, use = ...
local errors = use "errors"

local names = {"cross", "matrix_norm", "multi_dot", "norm", "vecdot", "vector_norm"}

local diagonal_keywords = {offset = true, dim1 = true, dim2 = true}
local linalg = {matmul = lt.matmul, matrix_power = lt.matrix_power}
for _, name in ipairs(names) do linalg[name] = assert(lt["linalg_" .. name], name) end

-- Matrices stand in the last two dimensions here.
function linalg.diagonal(x, options)
  options = options or {}
  for key in pairs(options) do
    if not diagonal_keywords[key] then
      errors.fail("linalg.diagonal: unknown keyword '%s'%s", tostring(key), errors.known(key, diagonal_keywords))
    end
  end
  return lt.diagonal(x, options.offset or 0, options.dim1 or -2, options.dim2 or -1)
end
return linalg
