-- linalg: the ops that PyTorch keeps in that namespace, as plain fields that hold the native functions.
local lt, use = ...
local keywords = use "keywords"

local names = {"cross", "matrix_norm", "multi_dot", "norm", "vecdot", "vector_norm"}

local diagonal_options = {offset = 0, dim1 = -2, dim2 = -1}
local linalg = {matmul = lt.matmul, matrix_power = lt.matrix_power}
for _, name in ipairs(names) do linalg[name] = assert(lt["linalg_" .. name], name) end

-- Here matrices are the last two dimensions.
function linalg.diagonal(x, options)
  options = keywords.check("linalg.diagonal", options, diagonal_options)
  return lt.diagonal(x, options.offset, options.dim1, options.dim2)
end
return linalg
