-- Variables of a frame that closures share: closures that assign them, breaks between and within, closures of earlier
-- calls that are kept and called again, loops and branches around, closures over variables of a loop, of a callee and
-- of another closure.
local names = {"a", "b", "c"}

local function assign(p) return p:line("%s = %s %% 7 + %d", p:pick(names), p:pick(names), p:random(5)) end

-- A closure, nested or not, that reads and maybe assigns variables.
local function closure(p, own)
  local body = ("function(y) %s%s = %s + 1 return y * 0.5 + %s end"):format(
    p:chance(20) and "lt.graph_break() " or "", own, own, p:pick(names))
  if not p:chance(30) then return body end
  return ("(function() local k = %d return %s end)()"):format(p:random(3), (body:gsub("y %*", "k * y *")))
end

local function statements(p, n, level, functions)
  for _ = 1, n do
    local k = p:random(15)
    if k == 1 then p:line("lt.graph_break()")
    elseif k == 2 then p:line("x = x * 0.5 + %s", p:pick(names))
    elseif k == 3 then assign(p)
    elseif k <= 5 and level == 1 then
      local f, own = "f" .. #functions + 1, p:pick(names)
      p:block(("local function %s(y)"):format(f), function()
        p:line("%s = %s + 1", own, own)
        if p:chance(25) then p:line("lt.graph_break()") end
        assign(p)
        p:line("y = y + %s", own)
        p.keep(p:line("return y * 0.5"))
      end)
      functions[#functions + 1] = f
    elseif k <= 8 and #functions > 0 then p:line("if %s then x = %s(x) end", p:pick(functions), p:pick(functions))
    elseif k == 9 and level < 3 then
      p:block(("for j = 1, %d do"):format(p:random(3)), function() statements(p, p:random(3), level + 1, functions) end)
    elseif k == 10 and level < 3 then
      p:block(("if %s %% %d == 0 then"):format(p:pick(names), p:random(3)), function()
        statements(p, p:random(3), level + 1, functions)
      end)
    elseif k == 11 and #functions > 0 then p:line("kept[%d] = kept[%d] or %s", p:random(3), p:random(3),
      p:pick(functions))
    elseif k == 13 then p:line("kept[%d] = %s", p:random(3), closure(p, p:pick(names)))
    elseif k == 14 then
      p:block(("for j = 1, %d do"):format(p:random(3)), function()
        p.keep(p:line("local d = j"))
        p:line("kept[j] = %s", closure(p, p:chance(50) and "d" or p:pick(names)))
        if p:chance(30) then p:line("x = x + d") end
        if p:chance(20) then p:line("lt.graph_break()") end
        p:line("d = d + %s", p:pick(names))
      end)
    elseif k == 15 then p:line("kept[%d] = make(x, %s)", p:random(3), p:pick(names))
    elseif k == 12 then p:line("if kept[1] then x = kept[1](x) end") end
  end
end

return {count = 40, generate = function(p)
  p.keep(p:line("kept, x = {}, data(1, 3)"))
  p:block("function make(t, n)", function()
    p.keep(p:line("local total = t * n"))
    if p:chance(30) then p:line("lt.graph_break()") end
    p.keep(p:line("return function(y) n = n + 1 total = total + y return total * 0.5 + n end"))
  end)
  p:frame("f", "x, i", function()
    p.keep(p:line("local a, b, c = i, 2, 3"))
    statements(p, 5 + p:random(11), 1, {})
    p.keep(p:line("return x, a, b, c"))
  end)
  p:block("for i = 1, 5 do", function()
    p.keep(p:line('try("call", f, x * i, i)'))
    p:line('for k = 1, 3 do if kept[k] then try("kept", kept[k], x) end end')
  end)
end}
