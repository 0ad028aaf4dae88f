-- index_programs.lua FILE: runs the programs of index_programs.py eagerly and compiled, and compares them exactly with
-- PyTorch's answers.
local lt = require "lutra"
local compile = select(2, ...) ~= "eager"

local function described(t)
  local out = t:detach():reshape(-1):totable()
  for i, v in ipairs(out) do
    out[i] = type(v) == "boolean" and (v and "1" or "0") or string.format("%.9g", tonumber(v))
  end
  return string.format("%s[%s] %s", t.dtype, table.concat(t.shape, ","), table.concat(out, ","))
end

-- Returns the program's answer, or nil and its error.
local function answer(f, mode, with_grad, make)
  local ok, text = pcall(function()
    local x, v, a = make(lt)
    local leaf = x:detach():clone():requires_grad_(with_grad)
    local given = mode ~= "number" and v and v:clone():requires_grad_(with_grad)
    local result = f(lt, leaf * 1, given or v, a)
    local out = {described(result)}
    if with_grad and result.requires_grad then
      local n = result:numel()
      local seed = ((lt.arange(n) % 7) + 1):view(result.shape):to(result.dtype)
      result:backward(seed)
      out[2] = described(leaf.grad)
      out[3] = given and given.grad and described(given.grad) or "none"
    end
    return table.concat(out, " | ")
  end)
  if ok then return text end
  return nil, text
end

local count, failed, raised = 0, 0, 0
local function check(name, form, got, message, want)
  if got == want then return end
  failed = failed + 1
  if failed <= 20 then
    print(string.format("FAILED %s %s\n  want %s\n  got  %s", name, form, tostring(want), got or tostring(message)))
  end
end

assert(loadfile((...)))(function(name, mode, with_grad, make, f, want)
  count = count + 1
  local got, message = answer(f, mode, with_grad, make)
  if not want then
    raised = raised + 1
    if message and message:find("internal", 1, true) then check(name, "error text", nil, message, "a user's error") end
  end
  check(name, "eager", got, message, want)
  if compile then
    local compiled = lt.compile(f)
    for call = 1, 2 do
      local again, text = answer(compiled, mode, with_grad, make)
      check(name, "compiled, call " .. call, again, text, want)
    end
    if count % 50 == 0 then lt.reset() end
  end
end)
print(string.format("%d programs, %d of them errors, %d failed", count, raised, failed))
os.exit(failed == 0 and count > 0 and 0 or 1)
