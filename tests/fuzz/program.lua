-- A random program as a tree of statements, so that it can be shrunk. A generator adds lines and blocks; text() returns
-- the program text. A statement may have an equivalent in Python, which PyTorch runs for comparison.
local python = require "python"

local Program = {}
Program.__index = Program

local kPrelude = "local lt, frame, see, gradient, try, data = ..."
local kModulus = 2147483647

-- A program of a class; every choice comes from the seed.
function Program.new(class, seed)
  local p = setmetatable({class = class, seed = seed, state = (seed * 48271 + 11) % kModulus, root = {}}, Program)
  p.body = p.root
  for _ = 1, 4 do p:random(1) end
  return p
end

-- Choices -------------------------------------------------------------------------------------------------------------

-- 1 to n. The generator is our own, so that a seed means the same program everywhere.
function Program:random(n)
  self.state = self.state * 16807 % kModulus
  return math.floor(self.state / 8) % n + 1
end

function Program:chance(percent) return self:random(100) <= percent end
function Program:pick(list) return list[self:random(#list)] end

-- A name that no other statement has.
function Program:name(prefix)
  self.names = (self.names or 0) + 1
  return prefix .. self.names
end

-- Statements ----------------------------------------------------------------------------------------------------------

-- A program has an equivalent in Python (p.python) if all its statements have one.
local function add(p, node)
  p.body[#p.body + 1] = node
  p.python = node.python ~= nil and p.python ~= false
  return node
end

-- Adds one statement. It uses string.format if there are more arguments.
function Program:line(format, ...)
  return add(self, {lua = select("#", ...) > 0 and format:format(...) or format})
end

-- Adds one statement in both languages; python = "" if Python needs none.
function Program:both(lua, python)
  return add(self, {lua = lua, python = python})
end

-- Adds one statement that can be translated to Python.
function Program:same(format, ...)
  local text = select("#", ...) > 0 and format:format(...) or format
  return self:both(text, python.statement(text))
end

-- Adds a function of the program, wrapped as the mode requires.
function Program:frame(name, arguments, fill)
  return Program.keep(self:block(("%s = frame(function(%s)"):format(name, arguments), fill, "end)",
    ("def %s(%s):"):format(name, arguments)))
end

-- Adds statements (without assignments) that may fail, and whose results are all observed.
function Program:attempt(name, text, python_text)
  local def = ("def attempted():\n    %s\nattempt('%s', attempted)"):format(python_text or python.statement(text), name)
  return self:both(("try('%s', function() %s end)"):format(name, text), def)
end

-- Adds a block; `fill` adds its contents. Shrinking removes all of it, or the contents. Python blocks need no tail.
function Program:block(head, fill, tail, python)
  local node = add(self, {lua = head, python = python, body = {}, tail = tail or "end"})
  local outer = self.body
  self.body = node.body
  fill()
  self.body = outer
  return node
end

-- Keeps the statement when the program is shrunk.
function Program.keep(node)
  node.keep = true
  return node
end

-- Text ----------------------------------------------------------------------------------------------------------------

local function write(out, nodes, depth, removed)
  for _, node in ipairs(nodes) do
    if not removed[node] and node.lua ~= "" then
      out[#out + 1] = ("  "):rep(depth) .. node.lua
      if node.body then
        write(out, node.body, depth + 1, removed)
        out[#out + 1] = ("  "):rep(depth) .. node.tail
      end
    end
  end
end

function Program:text(removed)
  local out = {("%s -- class %s, seed %d"):format(kPrelude, self.class, self.seed)}
  write(out, self.root, 0, removed or {})
  return table.concat(out, "\n") .. "\n"
end

local function write_python(out, nodes, depth, removed)
  local before = #out
  for _, node in ipairs(nodes) do
    local text = not removed[node] and node.python
    if text and text ~= "" then
      for line in text:gmatch("[^\n]+") do out[#out + 1] = ("    "):rep(depth) .. line end
      if node.body then write_python(out, node.body, depth + 1, removed) end
    end
  end
  if #out == before then out[#out + 1] = ("    "):rep(depth) .. "pass" end
end

function Program:python_text(removed)
  local out = {}
  write_python(out, self.root, 0, removed or {})
  return table.concat(out, "\n") .. "\n"
end

-- Shrinking -----------------------------------------------------------------------------------------------------------

local function removable(nodes, out)
  for _, node in ipairs(nodes) do
    if not node.keep then out[#out + 1] = node end
    if node.body then removable(node.body, out) end
  end
  return out
end

-- Removes statements while fails(removed) stays true, many at first, at most `tries` times. Returns the set of removed
-- statements.
function Program:shrink(fails, tries)
  local removed = {}
  local nodes = removable(self.root, {})
  local chunk = math.floor(#nodes / 2)
  while chunk >= 1 do
    local again = false
    local i = #nodes
    while i >= 1 do
      local attempt, low = {}, math.max(1, i - chunk + 1)
      for node in pairs(removed) do attempt[node] = true end
      for j = low, i do attempt[nodes[j]] = true end
      if tries <= 0 then return removed end
      tries = tries - 1
      if fails(attempt) then
        removed, again = attempt, true
        for j = i, low, -1 do table.remove(nodes, j) end
      end
      i = low - 1
    end
    chunk = (again and chunk > 1 or not again) and math.floor(chunk / 2) or chunk
  end
  return removed
end

return Program
