-- tape_programs.lua FILE: runs the programs of tape_programs.py and compares their tensors with PyTorch's answers.
local lt = require "lutra"

local function values(t)
  local out = t:detach():reshape(-1):totable()
  for i, v in ipairs(out) do out[i] = v ~= v and "nan" or string.format("%.12g", v) end
  return table.concat(out, ",")
end

-- Equal texts but for rounding, relative to the largest element.
local function near(got, want)
  if got == want then return true end
  local a, b, off, most = got:gmatch("[^,;]+"), want:gmatch("[^,;]+"), 0, 0
  while true do
    local x, y = a(), b()
    if not x or not y then return x == y and off <= 1e-7 * most end
    local nx, ny = tonumber(x), tonumber(y)
    if nx and ny and nx == nx and ny == ny then
      off, most = math.max(off, math.abs(nx - ny)), math.max(most, math.abs(ny))
    elseif x ~= y then
      return false
    end
  end
end

local count, failed = 0, 0
local function fail(name, what, got, want)
  failed = failed + 1
  if failed > 20 then return end
  print(string.format("FAILED %s: %s\n  want %s\n  got  %s", name, what, tostring(want), tostring(got)))
end

-- The program's tensors, and the first statement that raises where PyTorch's does not, or the other way round.
local function run(leaves, statements)
  local v = {}
  for i = 1, #leaves, 2 do
    local t = lt.tensor(leaves[i + 1], {dtype = "float64"}):view(leaves[i]):clone()
    v[#v + 1] = t:requires_grad_(i < 4)
  end
  for i, s in ipairs(statements) do
    local ok, made = pcall(s[3], lt, v)
    if ok ~= s[2] then return nil, i, made end
    if not ok and tostring(made):find("internal", 1, true) then return nil, i, made end
    if ok and s[1] == "s" then v[#v + 1] = made end
  end
  return v
end

local function backward(v, roots)
  local loss = 0
  for k, i in ipairs(roots) do loss = (v[i] * k):sum() + loss end
  loss:backward()
  local out = {}
  for k = 1, 2 do out[k] = v[k].grad and values(v[k].grad) or "none" end
  return table.concat(out, ";")
end

assert(loadfile((...)))(function(name, leaves, statements, roots, flags, shapes, want, grads)
  count = count + 1
  local v, at, message = run(leaves, statements)
  if not v then return fail(name, "statement " .. at, message, statements[at][2] and "no error" or "an error") end
  local all, sizes, requires = {}, {}, {}
  for i, t in ipairs(v) do
    all[i], sizes[i], requires[i] = values(t), table.concat(t.shape, ","), t.requires_grad and "1" or "0"
  end
  local got = table.concat(all, ";")
  if table.concat(sizes, ";") ~= shapes then return fail(name, "shapes", table.concat(sizes, ";"), shapes) end
  if not near(got, want) then return fail(name, "values", got, want) end
  if table.concat(requires) ~= flags then return fail(name, "requires_grad", table.concat(requires), flags) end
  local ok, gradients = pcall(backward, v, roots)
  if grads == "any" then return end
  if ok ~= (grads ~= nil) then return fail(name, "backward", gradients, grads or "an error") end
  if ok and not near(gradients, grads) then fail(name, "gradients", gradients, grads) end
end)
print(string.format("%d programs, %d failed", count, failed))
os.exit(failed == 0 and count > 0 and 0 or 1)
