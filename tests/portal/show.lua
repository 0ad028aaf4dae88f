-- show(f, ...): the results of f(...) as one text; tables by their sorted contents.
local function text(v)
  if type(v) == "table" then
    local parts = {}
    for k, x in pairs(v) do parts[#parts + 1] = tostring(k) .. "=" .. tostring(x) end
    table.sort(parts)
    return "{" .. table.concat(parts, ",") .. "}"
  end
  return type(v) == "number" and string.format("%.17g", v) or tostring(v)
end
return function(f, ...)
  local function collect(...)
    local out = {select("#", ...) .. ":"}
    for i = 1, select("#", ...) do out[#out + 1] = text((select(i, ...))) end
    return table.concat(out, " ")
  end
  return collect(f(...))
end
