-- Coroutines that a frame makes: generators, pipelines, schedulers, yields under calls, protected calls and iterators,
-- errors and breaks in bodies and between resumes, dead ones that are resumed, closures and variables that they share
-- with the frame, coroutines that outlive it.
local ops = {"(%s * 2):tanh()", "%s + w", "%s:exp() * 0.5", "%s - x", "%s * %s:sum()", "lt.where(%s:gt(0), %s, w)",
  "%s + hits", "%s * n"}
local breaks = {"io.write('')", "lt.graph_break()", "log[#log + 1] = tostring(y:sum():item())"}
local errors = {"error('plain')", "error({code = n})", "local z = y .. nil", "y = y:view(7, 7)", "y = y + lt.ones(5)"}
local writes = {"hits = hits + n", "state.last = y", "log[#log + 1] = 'w'", "y = y + 0 y:add_(1)", "sum = sum + y"}

local function fill(p, text) return (text:gsub("%%s", "y")) end

local body

-- Adds a statement with which a body yields y and receives it again.
local function yield(p)
  local k = p:random(12)
  if k <= 4 then return p:line("y = coroutine.yield(y) or y") end
  if k == 5 then return p:line("y = y + (select('#', coroutine.yield(y, n, nil)))") end
  if k == 6 then return p:line("ok, v = pcall(coroutine.yield, y); log[#log + 1] = tostring(ok)") end
  if k == 7 then return p:line("ok, v = pcall(function(z) return coroutine.yield(z) end, y); y = v or y") end
  if k == 8 then return p:line("y = give(y) or y") end
  if k == 9 then return p:line("y = giving(y) or y") end
  if k == 10 then return p:line("for i = 1, %s do coroutine.yield(y * i) end", p:pick {"2", "n % 3", "3"}) end
  if k == 11 then
    return p:line("for v in function(_, i) if not i then return coroutine.yield(y) end end do y = y + v end")
  end
  p:line("log[#log + 1] = coroutine.status(coroutine.running()) .. tostring(coroutine.isyieldable())")
end

local function statement(p, inside)
  local k = p:random(100)
  if k <= 45 then return p:line("y = %s", fill(p, p:pick(ops))) end
  if k <= 60 then return p:line("%s", p:pick(writes)) end
  if k <= 66 then return p:line("%s", p:pick(breaks)) end
  if k <= 72 then return p:line("if n %% %d == 0 then %s end", 2 + p:random(3), p:pick(errors)) end
  if k <= 78 then return p:line("list[#list + 1] = function(a) y = y * 0.5; return a + y end") end
  if k <= 82 then return p:line("if list[1] then y = list[1](y) end") end
  if inside then return yield(p) end
  p:line("y = y * 2")
end

-- Makes coroutines of a body and runs them.
local function run(p, depth)
  local k = p:random(10)
  local function made(what, tail)
    p:block(what .. "(function(y, m)", function() body(p, depth + 1, true) end, "end" .. tail)
  end
  p.keep(p:line("local ok, v"))
  if k <= 2 then
    made("for v, i in coroutine.wrap", ") do if v then y = y + v end if i then hits = hits + 1 end end")
  elseif k <= 4 then
    made("do local co = coroutine.wrap", ("); local a = co(y, n); local b = co(a, %d); y = b and a and b + a or y end")
      :format(p:random(3)))
  elseif k <= 6 then
    made("do local co = coroutine.create", (") for i = 1, %d do ok, v = coroutine.resume(co, y, i) " ..
      "log[#log + 1] = tostring(ok) .. coroutine.status(co) .. (ok and '' or told(v)) " ..
      "if ok and v then y = y + v end end end"):format(1 + p:random(4)))
  elseif k == 7 then
    made("do local co = coroutine.wrap", (") for i = 1, %d do ok, v = pcall(co, y) " ..
      "if ok and v then y = v else log[#log + 1] = ok and 'nil' or told(v) end end end"):format(1 + p:random(3)))
  elseif k == 8 then  -- takes turns
    made("do local cos = {} for i = 1, 2 do cos[i] = coroutine.create", (") end for i = 1, %d do " ..
      "ok, v = coroutine.resume(cos[i %% 2 + 1], y, i) if ok and v then y = v * 0.5 end end end"):format(p:random(5)))
  elseif k == 9 then
    made("do local co = coroutine.create",
      ") kept = co; ok, v = coroutine.resume(co, y) if ok and v then y = v end end")
  else
    p:line("if kept then ok, v = coroutine.resume(kept, y) if ok and v then y = y + v else kept = nil end end")
  end
end

function body(p, depth, inside)
  for _ = 1, 1 + p:random(4) do statement(p, inside) end
  if depth < 3 and p:chance(depth == 1 and 90 or 25) then run(p, depth) end
  if inside and p:chance(60) then yield(p) end
  for _ = 1, p:random(3) - 1 do statement(p, inside) end
  p.keep(p:line("do return y%s end", p:pick {"", ", n", ", nil, y"}))
end

local function generate(p)
  p.keep(p:line("x, w = data(1, 2, 3), data(2, 2, 3, {requires_grad = %s})", tostring(p:chance(40))))
  p.keep(p:line("state, list, log, hits, sum, kept, ok, v = {}, {}, {}, 0, 0, nil, nil, nil"))
  p.keep(p:line("told = function(e) return type(e) == 'table' and 'code ' .. tostring(e.code) or tostring(e) end"))
  p.keep(p:line("give = function(...) return coroutine.yield(...) end"))
  p.keep(p:line("giving = function(y) local z = coroutine.yield(y * 2); return z end"))
  p.keep(p:block("f = frame(function(y, n)", function()
    p:line("list = {}")
    run(p, 1)
    body(p, 1, false)
  end, "end)"))
  for n = 1, 3 + p:random(4) do p:line("try('f %d', f, data(%d, 2, 3), %d)", n, n, p:random(6)) end
  p:line("see('state', state.last, hits, sum, #list, table.concat(log, ';'))")
end

return {count = 60, generate = generate, lines = true}
