-- lt.associative_scan(f, xs, dim, {reverse = false}): returns the prefixes of xs along dim under f(a, b), which must be
-- associative: element i is f(f(x_0, x_1), ...) of the first i + 1. f takes and returns slices of any size along dim,
-- and combines them element by element. It takes about 2 log2(n) rounds of calls, each on many elements (Blelloch,
-- "Prefix sums and their applications", 1990). xs: a tensor or a (nested) table of tensors.
local lt, use = ...
local errors, keywords, tree = use "errors", use "keywords", use "control.tree"

local schema = {{"dim"}, {"reverse", false}}

local function part(list, dim, from, to, step)
  local out = {}
  for k = 1, #list do
    local t = list[k]:narrow(dim, from, to - from)
    if step > 1 then
      local index = {}
      for d = 1, t:dim() do index[d] = ":" end
      index[dim + 1] = {nil, nil, step}
      t = t[index]
    end
    out[k] = t
  end
  return out
end

-- Returns even[0], odd[0], even[1], ...: even has as many elements as odd, or one more.
local function interleave(even, odd, dim)
  local out = {}
  for k = 1, #even do
    local a, b = even[k], odd[k]
    local n = b:size(dim)
    local pairs_of = lt.stack({a:narrow(dim, 0, n), b}, dim + 1):flatten(dim, dim + 1)
    out[k] = a:size(dim) == n and pairs_of or lt.cat({pairs_of, a:narrow(dim, n, 1)}, dim)
  end
  return out
end

local function join(a, b, dim)
  local out = {}
  for k = 1, #a do out[k] = lt.cat({a[k], b[k]}, dim) end
  return out
end

local function prefixes(combine, list, dim)
  local n = list[1]:size(dim)
  if n < 2 then return list end
  local half = math.floor(n / 2)
  local odd = prefixes(combine, combine(part(list, dim, 0, 2 * half, 2), part(list, dim, 1, 2 * half, 2)), dim)
  local even = part(list, dim, 0, 1, 1)
  if n > 2 then
    local before = part(odd, dim, 0, n % 2 == 1 and half or half - 1, 1)
    even = join(even, combine(before, part(list, dim, 2, n, 2)), dim)
  end
  return interleave(even, odd, dim)
end

local function flip(list, dim)
  for k = 1, #list do list[k] = list[k]:flip(dim) end
  return list
end

return function(f, xs, ...)
  errors.callable("associative_scan", "f", f)
  local options = keywords.read("associative_scan", schema, ...)
  local dim = options.dim
  local list = tree.slices("associative_scan", "argument 'xs'", xs, dim)
  local rank = list[1]:dim()
  for k = 2, #list do
    if dim < 0 and list[k]:dim() ~= rank then
      errors.fail("associative_scan: argument 'dim' is %d, but the tensors of xs differ in how many dimensions they have",
        dim)
    end
  end
  if dim < 0 then dim = dim + rank end
  local function given() return "what " .. tree.place_of("f", f) .. " gives" end
  local function combine(a, b)
    local flat = tree.flatten("associative_scan", "what f gives", f(tree.like(xs, a), tree.like(xs, b)))
    tree.check("associative_scan", given, flat, "its first argument", a)
    return flat
  end
  if options.reverse then list = flip(list, dim) end
  list = prefixes(combine, list, dim)
  if options.reverse then list = flip(list, dim) end
  return tree.like(xs, list)
end
