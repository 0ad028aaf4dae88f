-- Fields of a table that are loaded at their first use. fill(t, files, fields): files[name] is the file whose value
-- t[name] is, fields[file] the names (in one string) of what t takes from the table that a file gives. A name that was
-- read is a plain field from then on. Who looks at a table without reading its fields (completion, help, advice, a
-- trace) asks load, names and all.
local _, use = ...

local places = {} -- [table] = {files, fields}

-- The file that gives t[key], and whether it is a field of the file's value.
local function file_of(place, key)
  local file = place[1][key]
  if file then return file, false end
  for each, names in next, place[2] do
    if (" " .. names .. " "):find(" " .. key .. " ", 1, true) then return each, true end
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

-- The set of names that a table has so, loaded or not.
local function names(t)
  local found, place = {}, places[t]
  if place == nil then return found end
  for name in next, place[1] do found[name] = true end
  for _, list in next, place[2] do
    for name in list:gmatch "%S+" do found[name] = true end
  end
  return found
end

-- Loads all, so that pairs(t) meets each name.
local function all(t)
  for name in next, names(t) do local _ = t[name] end
  return t
end

return {fill = fill, load = load, names = names, all = all, places = places}
