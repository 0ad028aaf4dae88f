-- Fields of a table that are loaded at their first use. fill(t, files, fields): files[name] is the file whose value is
-- t[name]. fields[file] lists, in one string, the names that t takes from the table that the file returns. After it is
-- read, a name is a plain field. Code that looks at a table without reading its fields (completion, help, advice, a
-- trace) calls `load`, `names` and `all`.
-- A program may replace the methods of strings before it reads a name: `find` and `gmatch` are the library's own.
local _, use = ...
local find, gmatch = string.find, string.gmatch

local places = {} -- [table] = {files, fields}

-- Returns the file of t[key], and whether t[key] is a field of the file's value.
local function file_of(place, key)
  local file = place[1][key]
  if file then return file, false end
  for each, names in next, place[2] do
    if find(" " .. names .. " ", " " .. key .. " ", 1, true) then return each, true end
  end
end

local function load(t, key)
  local place = places[t]
  if place == nil or type(key) ~= "string" then return nil end
  local file, is_field = file_of(place, key)
  if file == nil then return nil end
  local value = use(file)
  if is_field then value = value[key] end
  rawset(t, key, value)
  return value
end

local function fill(t, files, fields)
  places[t] = {files, fields or {}}
  local meta = getmetatable(t) or {}
  local before = meta.__index
  function meta.__index(self, key)
    local value = load(self, key)
    if value == nil and before then return before(self, key) end
    return value
  end
  return setmetatable(t, meta)
end

-- Returns the set of a table's lazy names, loaded or not.
local function names(t)
  local found, place = {}, places[t]
  if place == nil then return found end
  for name in next, place[1] do found[name] = true end
  for _, list in next, place[2] do
    for name in gmatch(list, "%S+") do found[name] = true end
  end
  return found
end

-- Loads all names, so that pairs(t) visits each.
local function all(t)
  for name in next, names(t) do local _ = t[name] end
  return t
end

return {fill = fill, load = load, names = names, all = all, places = places}
