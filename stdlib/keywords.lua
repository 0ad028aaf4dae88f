-- keywords(where, given, known): a trailing table of options in, a new table with every option out. `known` maps each name to its
-- default (use keywords.none for nil). An unknown name is an error that lists the known ones.
local none = {}

local function check(where, given, known)
  local options = {}
  for name, default in pairs(known) do
    if default ~= none then options[name] = default end
  end
  if given == nil then return options end
  if type(given) ~= "table" then
    error(string.format("%s: options are a table, not a %s", where, type(given)), 3)
  end
  for name, value in pairs(given) do
    if known[name] == nil then
      local names = {}
      for each in pairs(known) do names[#names + 1] = each end
      table.sort(names)
      error(string.format("%s: unknown option '%s' (known: %s)", where, tostring(name), table.concat(names, ", ")), 3)
    end
    options[name] = value
  end
  return options
end

return {check = check, none = none}
