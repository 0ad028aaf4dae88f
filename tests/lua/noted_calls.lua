-- Helpers for tests of breaks under calls. note(v) breaks the graph and appends the text of v to `noted`; forget()
-- empties that. compare(make, rows): make() returns f; calls of f with the arguments of each row must have eager's
-- results, errors and notes. Returns the number of graphs.
local lt = require "lutra"
local h = require "harness"

local noted = {}
local function forget()
  for i = #noted, 1, -1 do noted[i] = nil end
end
local function note(v)
  noted[#noted + 1] = tostring(v)
  lt.graph_break()
end
local function text(v) return type(v) == "userdata" and tostring(v:detach()) or tostring(v) end
local function compare(make, rows)
  local function run(wrap)
    local f, seen = wrap(make()), {}
    forget()
    for round = 1, 3 do
      for i, row in ipairs(rows) do
        local function told(e) return "error: " .. (type(e) == "table" and e[1] or tostring(e)) end
        local r = {xpcall(function() return f(unpack(row)) end, told)}
        for k = 1, #r do r[k] = text(r[k]) end
        seen[#seen + 1] = round .. "." .. i .. ": " .. table.concat(r, "|")
      end
    end
    return table.concat(seen, "\n") .. "\n" .. table.concat(noted, " ")
  end
  return h.graphs_of(run)
end
return {note = note, text = text, compare = compare, noted = noted, forget = forget}
