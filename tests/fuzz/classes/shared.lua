-- Frames under frames, each with variables that closures assign and with breaks: functions in functions, loops with
-- variables of their own, closures that are kept and called again, early returns, protected calls, recursion.
local body

local function update(p, v)
  if v.tensor then return p:line("%s = %s * 0.5 + %s", v.name, v.name, p:pick {"x", "1", "0.25"}) end
  p:line("%s = %s %% 5 + %d", v.name, v.name, p:random(3))
end

local function pause(p)
  local k = p:random(6)
  if k <= 3 then p:line("lt.graph_break()")
  elseif k == 4 then p:line('note("%s")', p:name("at"))
  elseif k == 5 then p:line("note(x)")
  else p:line("collectgarbage()") end
end

-- Adds statements of a closure on variables of the frames around it.
local function closure(p, scope)
  for _ = 1, p:random(2) do update(p, p:pick(scope.variables)) end
  if p:chance(20) then pause(p) end
  p.keep(p:line("return x * 0.5 + %s", p:pick(scope.variables).name))
end

local function inner(scope)
  local new = {variables = {unpack(scope.variables)}, functions = {unpack(scope.functions)}, depth = scope.depth}
  return new
end

local function call(p, f)
  local k = p:random(8)
  if k == 1 then p:line("do local ok, r = pcall(%s, x) x = ok and r or x end", f)
  elseif k == 2 then p:line("x = (%s(x))", f)
  elseif k == 3 then p:line("x = x + %s(x) * 0.5", f)
  elseif k == 4 then p:line("if left > 0 then left = left - 1 x = %s(x) end", f)
  elseif k == 5 then p:line("do local a, b = %s(x * 0.5) x = b and a + b or a end", f)
  else p:line("x = %s(x)", f) end
end

local function statement(p, scope)
  local k = p:random(17)
  if k <= 2 then pause(p)
  elseif k == 3 then p:line("x = x * 0.5 + %s", p:pick(scope.variables).name)
  elseif k == 4 then update(p, p:pick(scope.variables))
  elseif k <= 6 then
    local f = p:name("c")
    p:block(("local function %s(x)"):format(f), function() closure(p, scope) end)
    table.insert(scope.functions, f)
  elseif k <= 9 and #scope.functions > 0 then call(p, p:pick(scope.functions))
  elseif k <= 12 and scope.depth < 4 then
    local f = p:name("f")
    p:block(("local function %s(x)"):format(f), function() body(p, scope, p:random(6)) end)
    call(p, f)
    if p:chance(40) then table.insert(scope.functions, f) end
  elseif k == 13 and scope.depth < 4 then
    local new = inner(scope)
    new.depth = new.depth + 1
    p:block(("for j = 1, %d do"):format(p:random(3)), function()
      local d = {name = p:name("d")}
      p.keep(p:line("local %s = j", d.name))
      table.insert(new.variables, d)
      for _ = 1, p:random(4) do statement(p, new) end
    end)
  elseif k == 14 and scope.depth < 4 then
    local new = inner(scope)
    new.depth = new.depth + 1
    local v = p:pick(scope.variables)
    local asks = v.tensor and "left % 2 == 0" or ("%s %% 2 == 0"):format(v.name)
    p:block(("if %s then"):format(asks), function() for _ = 1, p:random(3) do statement(p, new) end end)
  elseif k == 15 then
    p:block(("kept[%d] = function(x)"):format(p:random(3)), function() closure(p, scope) end)
  elseif k == 16 then
    local i = p:random(3)
    p:line("if kept[%d] then x = kept[%d](x) end", i, i)
  elseif k == 17 then
    p:line("if left %% %d == 1 then left = left - 1 %s end", 2 + p:random(3),
      p:chance(70) and "return x, " .. p:pick(scope.variables).name or 'error("stop")')
  end
end

function body(p, scope, n)
  local new = inner(scope)
  new.depth = new.depth + 1
  for _ = 1, p:random(2) do
    local v = {name = p:name("v"), tensor = p:chance(50)}
    p.keep(p:line("local %s = %s", v.name, v.tensor and "x * 0.5" or p:random(4)))
    table.insert(new.variables, v)
  end
  if p:chance(30) then table.insert(new.variables, {name = "x", tensor = true}) end
  for _ = 1, n do statement(p, new) end
  p.keep(p:line("return x + %s", new.variables[#scope.variables + 1].name))
end

return {count = 40, generate = function(p)
  p.keep(p:line("kept, left, notes = {}, 6, {}"))
  p.keep(p:line("function note(v) notes[#notes + 1] = tostring(v) lt.graph_break() end"))
  p:frame("f", "x", function() body(p, {variables = {}, functions = {}, depth = 0}, 4 + p:random(6)) end)
  p:block("for i = 1, 5 do", function()
    p:line("left = 6")
    p.keep(p:line('try("call", f, data(i, 3))'))
    p:line('for k = 1, 3 do if kept[k] then try("kept", kept[k], data(k, 3)) end end')
    p:line('see("notes", table.concat(notes, " "))')
    p:line("if i % 2 == 0 then kept = {} end")
  end)
end}
