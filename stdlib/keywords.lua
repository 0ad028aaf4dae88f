-- keywords(where, given, known): a trailing table of options in, a new table with every option out. `known` maps each name to its
-- default (use keywords.none for nil). An unknown name is an error that lists the known ones.
local _, use = ...
local errors = use "errors"
local fail = errors.fail
local none = {}

local function check(where, given, known)
  local options = {}
  for name, default in pairs(known) do
    if default ~= none then options[name] = default end
  end
  if given == nil then return options end
  if type(given) ~= "table" then
    fail("%s: options are a table, not %s", where, errors.show(given))
  end
  for name, value in pairs(given) do
    if known[name] == nil then
      local names = {}
      for each in pairs(known) do names[#names + 1] = each end
      table.sort(names)
      fail("%s: unknown option '%s' (known: %s)", where, tostring(name), table.concat(names, ", "))
    end
    if type(known[name]) == "boolean" then errors.boolean(where, name, value) end
    options[name] = value
  end
  return options
end

return {check = check, none = none}
