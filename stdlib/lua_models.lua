-- Functions of Lua's library as Lua code, for capture. It inlines them if a call passes functions or makes one
-- (vm/capture/trace/builtin_models.cc). They never run. `error` stands for each error of the real function: the graph
-- breaks there, and the real function runs.
local find, sub, type, error, select, rawget, rawset = string.find, string.sub, type, error, select, rawget, rawset
local next = next
local M = {}

-- Returns a match in s: its place, then its captures, or the whole match if there are none.
local function captured(s, from, to, ...)
  if from and select("#", ...) == 0 then return from, to, sub(s, from, to) end
  return from, to, ...
end

-- The iterator of string.gmatch. An anchor has no meaning there.
function M.gmatch(s, pattern)
  if sub(pattern, 1, 1) == "^" then pattern = "%" .. pattern end
  local at = 1
  local function step(from, to, ...)
    if not from then
      at = #s + 2
      return
    end
    at = to < from and from + 1 or to + 1
    return ...
  end
  return function()
    if at > #s + 1 then return end
    return step(captured(s, find(s, pattern, at)))
  end
end

local function replaced(s, by, from, to, first, ...)
  local value
  if type(by) == "table" then value = by[first] else value = by(first, ...) end
  if not value then return sub(s, from, to), from, to end
  if type(value) ~= "string" and type(value) ~= "number" then error "no replacement" end
  return value .. "", from, to
end

-- by: a table or a function.
function M.gsub(s, pattern, by, most)
  local out, at, n = "", 1, 0
  while n < (most or #s + 1) do
    local from, to = find(s, pattern, at)
    if not from then break end
    n = n + 1
    local value = replaced(s, by, captured(s, find(s, pattern, at)))
    out = out .. sub(s, at, from - 1) .. value
    if to >= from then
      at = to + 1
    else
      out, at = out .. sub(s, from, from), from + 1
    end
    if at > #s + 1 or sub(pattern, 1, 1) == "^" then break end
  end
  return out .. sub(s, at), n
end

function M.maxn(list)
  local most = 0
  for key in next, list do
    if type(key) == "number" and key > most then most = key end
  end
  return most
end

local function is_before(before, a, b)
  if before then return before(a, b) end
  return a < b
end

local function swap(list, i, a, j, b)
  rawset(list, i, a)
  rawset(list, j, b)
end

-- Sorts by the same steps as LuaJIT, because otherwise equal elements could end up in another order.
local function sort(list, low, high, before)
  while low < high do
    local a, b = rawget(list, low), rawget(list, high)
    if is_before(before, b, a) then swap(list, low, b, high, a) end
    if high - low == 1 then return end
    local i = (low + high - (low + high) % 2) / 2
    local m = rawget(list, i)
    a = rawget(list, low)
    if is_before(before, m, a) then
      swap(list, i, a, low, m)
    else
      b = rawget(list, high)
      if is_before(before, b, m) then swap(list, i, b, high, m) end
    end
    if high - low == 2 then return end
    local pivot = rawget(list, i)
    swap(list, i, rawget(list, high - 1), high - 1, pivot)
    i = low
    local j = high - 1
    while true do
      i = i + 1
      while is_before(before, rawget(list, i), pivot) do
        if i >= high then error "no order" end
        i = i + 1
      end
      j = j - 1
      while is_before(before, pivot, rawget(list, j)) do
        if j <= low then error "no order" end
        j = j - 1
      end
      if j < i then break end
      swap(list, i, rawget(list, j), j, rawget(list, i))
    end
    swap(list, high - 1, rawget(list, i), i, rawget(list, high - 1))
    if i - low < high - i then
      sort(list, low, i - 1, before)
      low = i + 1
    else
      sort(list, i + 1, high, before)
      high = i - 1
    end
  end
end

function M.sort(list, before) sort(list, 1, #list, before) end

return M
