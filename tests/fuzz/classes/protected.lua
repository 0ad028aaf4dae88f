-- Protected calls and callees that break: errors raised before, between and after ops and breaks, in callees of any
-- depth, caught by pcall or xpcall, within modes; callees that take varargs, are modules, or whose lists of results
-- become tables and arguments; what was written before an error is seen.
local ops = {"(%s * 2):tanh()", "%s + w", "%s:exp() * 0.5", "%s - x", "%s * %s:sum()", "lt.where(%s:gt(0), %s, w)",
  "%s:matmul(w:t()):matmul(w) * 0.1"}
local breaks = {"log[#log + 1] = 'b'; io.write('')", "lt.graph_break()", "log[#log + 1] = tostring(y:sum():item())",
  "if y:sum():item() > 0 then hits = hits + 1 end"}
local errors = {"error('plain')", "error('bare', 0)", "error({code = n})", "error()", "local z = y .. nil",
  "nothing.x = 1", "y = y:view(7, 7)", "assert(false, 'assert')", "y = y + lt.ones(5)", "y = x[9]"}
local writes = {"state.n = state.n + 1", "hits = hits + n", "state.last = y", "log[#log + 1] = 'w'", "y:add_(1)",
  "list[#list + 1] = n"}

local function fill(p, text) return (text:gsub("%%s", "y")) end

local function statement(p)
  local k = p:random(100)
  if k <= 40 then return p:line("y = %s", fill(p, p:pick(ops))) end
  if k <= 60 then return p:line("%s", p:pick(breaks)) end
  if k <= 80 then return p:line("%s", p:pick(writes)) end
  p:line("if n %% %d == %d then %s end", 1 + p:random(3), p:random(2) - 1, p:pick(errors))
end

-- Calls of a function. %s is its name.
local calls = {
  "ok, y = pcall(%s, y, n); if not ok then seen(y); y = x * n end",
  "ok, y = xpcall(%s, handler, y, n); if not ok then seen(y); y = x + n end",
  "ok, y = pcall(lt.no_grad, %s, y, n); if not ok then seen(y); y = x - n end",
  "y = %s(y, n)",
  "ok, y = pcall(function() local z = %s(y, n); return z * 2 end) if not ok then seen(y); y = x end",
  "y = lt.no_grad(%s, y, n)",
  "for i = 1, 2 do ok, y = pcall(%s, y, n + i); if not ok then seen(y); y = x end end",
  "ok, y = pcall(pcall, %s, y, n); ok, y = y, x",
  "y = ({%s(y, n)})[1]",
  "y, ok = first(%s(y, n)); hits = hits + ok",
  "y = join(y, %s(y, n))",
  "y = module(y, %s, n)",
  "y = lt.enable_grad(lt.no_grad, %s, y, n)",
  "ok, y = pcall(lt.no_grad, function(...) local z, m = %s(...); return z + 1, m end, y, n) " ..
    "log[#log + 1] = tostring(lt.is_grad_enabled()); if not ok then seen(y); y = x end",
  "ok, y = xpcall(function(...) return (%s(...)) end, handler, y, n); if not ok then seen(y); y = x end",
  "y = lt.autocast('cpu', {dtype = lt.bfloat16}, %s, y, n):float()",
  "ok, y = pcall(lt.autocast, 'cpu', {enabled = n %% 2 == 0, cache_enabled = n == 1}, %s, y, n) " ..
    "log[#log + 1] = autocast(); if not ok then seen(y); y = x end",
  "ok, y = pcall(lt.autocast, 'cpu', {dtype = lt.float16}, function(...) local z, m = %s(...) " ..
    "log[#log + 1] = autocast(); return lt.no_grad(lt.matmul, z, w:t()):matmul(w), m end, y, n) " ..
    "log[#log + 1] = autocast(); if not ok then seen(y); y = x end",
}
local function call(p, g) return p:line(p:pick(calls), g) end

local function body(p, callees)
  for _ = 1, 1 + p:random(4) do
    if #callees > 0 and p:chance(40) then call(p, p:pick(callees)) else statement(p) end
  end
end

local function generate(p)
  p.keep(p:line("x, w = data(1, 2, 3), data(2, 2, 3, {requires_grad = %s})", tostring(p:chance(40))))
  p.keep(p:line("state, list, log, hits, nothing = {n = 0}, {}, {}, 0, nil"))
  p.keep(p:line("seen = function(e) log[#log + 1] = %s end",
    "type(e) == 'table' and 'code ' .. tostring(e.code) or tostring(e)"))
  p.keep(p:line("handler = function(e) return 'handled ' .. (type(e) == 'table' and 'table' or tostring(e)) end"))
  p.keep(p:line("first = function(...) local a = ...; return a, select('#', ...) end"))
  p.keep(p:line("join = function(a, ...) return a + (...) * select('#', ...) end"))
  p.keep(p:line("module = setmetatable({forward = function(self, y, g, n) return g(y * 0.5, n) end}, " ..
    "{__call = function(self, ...) return self:forward(...) end})"))
  p.keep(p:line("autocast = function() return table.concat({tostring(lt.is_autocast_enabled('cpu')), " ..
    "tostring(lt.get_autocast_dtype('cpu')), tostring(lt.is_autocast_cache_enabled())}, ' ') end"))
  local callees = {}
  for i = 1, 1 + p:random(3) do
    local name = "g" .. i
    local varargs = p:chance(30)
    p.keep(p:block(("%s = function(%s)"):format(name, varargs and "..." or "y, n"), function()
      if varargs then p.keep(p:line("local y, n = ...")) end
      p.keep(p:line("local ok"))
      body(p, callees)
      if varargs then p:line("y = y * select('#', ...)") end
      p.keep(p:line("return y%s", p:pick {"", "", ", n", ", ok, y"}))
    end))
    callees[#callees + 1] = name
  end
  p.keep(p:block("f = frame(function(y, n)", function()
    p.keep(p:line("local ok"))
    body(p, callees)
    call(p, callees[#callees])
    p.keep(p:line("return y, n"))
  end, "end)"))
  for n = 1, 3 + p:random(5) do p:line("try('f %d', f, data(%d, 2, 3), %d)", n, n, p:random(6)) end
  p:line("see('state', state.n, state.last, hits, #list, table.concat(log, ';'))")
end

return {count = 80, generate = generate}
