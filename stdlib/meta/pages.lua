-- One page of Markdown for each op, and an index by family. A page comes from the op's row, its schema and its example,
-- run in each dtype.
local lt, use = ...
local names, examples = use "meta.names", use "meta.examples"

local DTYPES = {"float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"}

local function signature(name, form)
  local parts, keyword = {}, false
  for _, arg in ipairs(form) do
    if arg.keyword_only and not keyword then parts[#parts + 1] = "*" end
    keyword = keyword or arg.keyword_only
    parts[#parts + 1] = arg.name .. (arg.default and " = " .. arg.default or "")
  end
  return name .. "(" .. table.concat(parts, ", ") .. ")"
end

-- Returns "float32 {2, 3}" for each result.
local function kinds(results)
  local out = {}
  for i = 1, results.n do
    local v = results[i]
    if lt.is_tensor(v) then
      out[#out + 1] = v.dtype .. " {" .. table.concat(v.shape, ", ") .. "}"
    elseif type(v) == "table" and lt.is_tensor(v[1]) then
      local list = {n = #v}
      for k, each in ipairs(v) do list[k] = each end
      out[#out + 1] = "a list of " .. kinds(list)
    else
      out[#out + 1] = type(v)
    end
  end
  return #out == 0 and "nothing" or table.concat(out, ", ")
end

-- Returns the definitions of the inputs that the example uses.
local function inputs(line)
  local out = {}
  for _, rows in ipairs {examples.floats, examples.others} do
    for _, row in ipairs(rows) do
      if line:find("%f[%w_]" .. row[1] .. "%f[^%w_]") then out[#out + 1] = "local " .. row[1] .. " = " .. row[2] end
    end
  end
  return out
end

-- Returns whether a cast of the inputs changes the example's arguments.
local function casts(line)
  for _, row in ipairs(examples.floats) do
    if line:find("%f[%w_]" .. row[1] .. "%f[^%w_]") then return true end
  end
  return false
end

-- Formats a value; for a table, its list.
local function text_of(v)
  if type(v) == "table" then
    local out = {}
    for i, each in ipairs(v) do out[i] = text_of(each) end
    return "{" .. table.concat(out, ", ") .. "}"
  end
  return (type(v) == "function" or type(v) == "userdata" and not lt.is_tensor(v)) and "a " .. type(v) or tostring(v)
end

local function printed(results)
  local out = {}
  for i = 1, results.n do
    local v = results[i]
    if type(v) == "table" and lt.is_tensor(v[1]) then
      for _, each in ipairs(v) do out[#out + 1] = tostring(each) end
    else
      out[#out + 1] = text_of(v)
    end
  end
  return table.concat(out, "\n")
end

local function add_example(out, d, line)
  out[#out + 1] = "## Example\n\n```lua"
  for _, each in ipairs(inputs(line)) do out[#out + 1] = each end
  out[#out + 1] = "print(" .. line .. ")\n```\n"
  if examples.shown[d.name] then return end
  local ok, results = examples.run(line)
  if not ok then out[#out + 1] = "An error: " .. results .. "\n" return end
  local unknown = select(3, examples.parts(d)) or d.name:find "^empty" or d.name:find "^new_empty"
  if results.n > 0 and not unknown then out[#out + 1] = "```\n" .. printed(results) .. "\n```\n" end
  out[#out + 1] = "Gives: " .. kinds(results) .. ".\n"
end

local function add_dtypes(out, line)
  out[#out + 1] = "## Types\n\n| inputs in | the example gives |\n| --- | --- |"
  for _, dtype in ipairs(DTYPES) do
    local ok, results = examples.run(line, dtype)
    out[#out + 1] = string.format("| %s | %s |", dtype, ok and kinds(results) or "refused: "
      .. results:gsub("|", "\\|"))
  end
  out[#out + 1] = ""
end

local GRADIENT = {own = "by a rule of its own", parts = "through what it is made of", none = "none"}
local FAILS = {always = "It may raise an error about elements.",
  integers = "With integers it may raise an error about elements."}

local function add_facts(out, d)
  local function say(text) out[#out + 1] = "- " .. text end
  local has = {}
  for _, arg in ipairs(d.forms[1]) do has[arg.name] = true end
  local parts, views, draws = examples.parts(d)
  say("Kind: " .. d.category .. ".")
  if d.aliases or views then say "The result shares memory with the first argument." end
  if d.returns_itself then say "Where nothing changes, the result is the argument itself." end
  if d.writes or d.inplace then say "It writes its first argument." end
  if names.of[d.name .. "_"] then say("In place: `" .. d.name .. "_`.") end
  if has.out then say "It takes `out =`." end
  if draws then say("It draws random numbers" .. (d.takes_generator and ", and takes `generator =`." or ".")) end
  if FAILS[d.fails] then say(FAILS[d.fails]) end
  if d.dynamic then say "The shape of its results depends on elements: it ends a graph." end
  say("Gradient: " .. GRADIENT[d.gradient] .. ".")
  if d.composite and #parts > 0 then say("The example runs these primitives: " .. table.concat(parts, ", ") .. ".") end
  out[#out + 1] = ""
end

-- Lists each argument once, with its types in all forms.
local function add_arguments(out, d)
  local rows, of = {}, {}
  for _, form in ipairs(d.forms) do
    for _, arg in ipairs(form) do
      local row = of[arg.name]
      if not row then
        row = {name = arg.name, types = {}, default = arg.default}
        rows[#rows + 1], of[arg.name] = row, row
      end
      if not row.types[arg.type] then row.types[#row.types + 1] = arg.type end
      row.types[arg.type] = true
    end
  end
  if #rows > 0 then out[#out + 1] = "| argument | type | default |\n| --- | --- | --- |" end
  for _, row in ipairs(rows) do
    out[#out + 1] = string.format("| %s | %s | %s |", row.name, table.concat(row.types, "; "), row.default and "`"
      .. row.default .. "`" or "")
  end
  out[#out + 1] = ""
end

local function other_names(d)
  local out = {}
  for _, each in ipairs(names.list) do
    if each ~= d and names.page_of(each) == d.name then out[#out + 1] = "`" .. each.name .. "`" end
  end
  for _, place in ipairs(d.places) do out[#out + 1] = "`" .. place .. "`" end
  return table.concat(out, ", ")
end

local function page(d)
  local line = examples.example(d)
  local out = {"# " .. d.name .. "\n", d.about .. "\n", "```"}
  for _, form in ipairs(d.forms) do out[#out + 1] = signature((d["function"] and "lt." or "x:") .. d.name, form) end
  if #d.forms == 0 then out[#out + 1] = (d["function"] and "lt." or "x:") .. d.name .. "(...)" end
  out[#out + 1] = "```\n"
  if d["function"] and d.method then
    out[#out + 1] = "Also a method, `x:" .. d.name .. "(...)`, whose first argument is `x`.\n"
  end
  local others = other_names(d)
  if others ~= "" then out[#out + 1] = "Other names and forms: " .. others .. ".\n" end
  if #d.forms > 0 then add_arguments(out, d) end
  if d.family then add_facts(out, d) end
  if d.family and casts(line) then add_dtypes(out, line) end
  add_example(out, d, line)
  return table.concat(out, "\n")
end

local TITLES = {elementwise = "Elementwise", reduce = "Reductions and statistics", shape = "Shapes, splits, joins",
  matrix = "Products", network = "Networks",
                index = "Indexing", create = "Making tensors", other = "What a tensor is, and the session"}
local ORDER = {"create", "elementwise", "reduce", "shape", "matrix", "index", "network", "other"}

local function index()
  local out = {"# Ops\n",
    "Names of `lt.*` and of methods. A name that ends in _ stands on the page of the name without it.\n"}
  for _, family in ipairs(ORDER) do
    out[#out + 1] = "## " .. TITLES[family] .. "\n"
    for _, d in ipairs(names.list) do
      if (d.family or "other") == family then
        out[#out + 1] = string.format("- [%s](%s.md): %s", d.name, names.page_of(d), d.about)
      end
    end
    out[#out + 1] = ""
  end
  return table.concat(out, "\n")
end

-- Returns texts by file name.
local function files()
  local out = {["index.md"] = index()}
  for _, d in ipairs(names.list) do
    if names.page_of(d) == d.name then out[d.name .. ".md"] = page(d) end
  end
  return out
end

return {page = page, files = files, DTYPES = DTYPES, casts = casts}
