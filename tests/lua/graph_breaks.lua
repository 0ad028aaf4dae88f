-- Tests that each reason of a graph break (vm/capture/trace/breaks.def) has an example that breaks only for it, and
-- that docs/graph_breaks.md is what the table and the examples give. `lutra graph_breaks.lua --write` writes the page.
local lt = require "lutra"
local h = require "harness"
local examples = require "break_examples"
local rows = lt._native.break_rows()
local page = "../../docs/graph_breaks.md"

local function parts(id)
  local example = examples[id]
  if type(example) == "table" then return example[1], example.also end
  return example, ""
end

local function program(code)
  if code:find("lt.compile", 1, true) then return code end
  return "local f = lt.compile(function(x)\n  " .. code:gsub("\n", "\n  ") .. "\nend)\nf(lt.ones(3))"
end

local function folded(text)
  local lines, line = {}, ""
  for word in text:gmatch "%S+" do
    if #line + #word + 1 > 119 then lines[#lines + 1], line = line, "" end
    line = line == "" and word or line .. " " .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

local function text()
  local out = {[[
# Graph breaks

The reasons for which a graph ends, each with what to do and an example. `lt.explain(f)(...)`, `lutra explain`,
`LUTRA_LOGS=graph_breaks` and errors of `fullgraph` name the section. [compile.md](compile.md) tells what a break costs.
A `...` stands for what the break is about. Errors that eager code raises as well are breaks, too: the original code
runs and raises them, under `fullgraph` as well.

`scripts/graph_breaks` writes this page from `vm/capture/trace/breaks.def` and `tests/lua/break_examples.lua`.
]]}
  for _, row in ipairs(rows) do
    local about = ("\"%s\" (kind `%s`): %s."):format(row.text:gsub("%%", "..."), row.kind, row.hint)
    out[#out + 1] = ("## %s\n\n%s\n\n```lua\n%s\n```\n"):format(row.id, folded(about), program((parts(row.id))))
  end
  return table.concat(out, "\n")
end

if arg[1] == "--write" then
  local file = assert(io.open(page, "w"))
  file:write(text())
  file:close()
  os.exit(0)
end

-- The ids and reports of the breaks of what the program compiles.
local function breaks_of(code)
  lt.reset()
  local compiled = {}
  local library = setmetatable({compile = function(...)
    compiled[#compiled + 1] = lt.compile(...)
    return compiled[#compiled]
  end}, {__index = lt})
  local chunk = assert(loadstring(code, "=example"))
  setfenv(chunk, setmetatable({lt = library}, {__index = _G}))
  local ok, message = pcall(chunk)
  lt.config.stress = ""
  local found = {}
  for _, f in ipairs(compiled) do
    for _, b in ipairs(lt._report(f).break_reasons) do found[#found + 1] = b end
  end
  return found, not ok and message
end

for _, row in ipairs(rows) do
  h.test(row.id, function()
    h.truthy(#row.hint > 0 and #row.kind > 0, "no hint or no kind")
    local code, also = parts(row.id)
    h.truthy(code, "no example")
    local found, message = breaks_of(program(code))
    local seen = false
    h.truthy(not message or row.kind == "error", message)
    for _, b in ipairs(found) do
      seen = seen or b.id == row.id
      h.truthy(b.id == row.id or also:find(b.id, 1, true), "breaks for " .. b.id .. ": " .. b.reason)
      h.equal(b.anchor, "docs/graph_breaks.md#" .. b.id)
      h.truthy(#b.hint > 0 and b.file == "example" and b.line > 0, b.reason .. " has no hint or no place")
    end
    h.truthy(seen, "it is not seen")
  end)
end

h.test("an example that no row has", function()
  local known = {}
  for _, row in ipairs(rows) do known[row.id] = true end
  for id in pairs(examples) do h.truthy(known[id], id) end
end)

h.test("docs/graph_breaks.md is what the table gives (scripts/graph_breaks writes it)",
  function() h.equal(h.read(page), text()) end)

h.finish()
