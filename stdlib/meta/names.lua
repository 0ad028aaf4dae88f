-- Every public name of native code, as describe returns it: a list sorted by name, and a table by name. Each gets
-- `places`, the other names under which it can be found.
local lt = ...
local describe = lt._native.describe

local list, of = {}, {}
local function add(f)
  local d = type(f) == "function" and describe(f)
  if not d or d.name:find "^_" then return nil end
  if not of[d.name] then
    d.places = {}
    of[d.name], list[#list + 1] = d, d
  end
  return of[d.name]
end

for key, value in next, lt do
  if not tostring(key):find "^_" then add(value) end
end
local x = lt.ones(1)
for name in next, lt._native.names().methods do
  if not name:find "^_" then add(x[name]) end
end
for _, space in ipairs {"nn.functional", "linalg", "special"} do
  local fields = lt
  for step in space:gmatch "%a+" do fields = fields[step] end
  for key, value in next, fields do
    local d = add(value)
    local place = space .. "." .. key
    if d and d.name ~= place then d.places[#d.places + 1] = "lt." .. place end
  end
end
table.sort(list, function(a, b) return a.name < b.name end)
for _, d in ipairs(list) do table.sort(d.places) end

-- Returns the name whose page documents d: for name_ that of name, for an alias that of the op, for a function of
-- nn.functional that of the function of lt.
local function page_of(d)
  if d.same_as then return page_of(of[d.same_as]) end
  local plain = d.name:match "^nn%.functional%.(.*)"
  if plain then return page_of(of[plain]) end
  return d.inplace and of[d.name:sub(1, -2)] and page_of(of[d.name:sub(1, -2)]) or d.name
end

return {list = list, of = of, page_of = page_of}
