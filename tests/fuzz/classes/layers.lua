-- Lists of functions and modules of several kinds, called one after the other: loops by number, by ipairs and pairs, in
-- callees, in one another, in nn.Sequential. Some layers end the graph: at once, in their middle, in a callee, in some
-- calls only. Lists change between calls.
local kinds = {"function(t) return t * 2 + 1 end", "function(t) return t:tanh() end",
  "function(t) local u = t * 3; lt.graph_break(); return u:sin() end",
  "function(t) lt.graph_break(); return t + 1 end", "function(t) return leaf(t * 0.5) * 2 end",
  "function(t) local u = t:exp(); total = total + u:sum():item(); return u / 2 end",
  "function(t) if total > 3 then lt.graph_break() end return t - 1 end", "function(t) return all(few, t) end",
  "function(t) for i = 1, 2 do t = t + i end return t end", "function(t) calls = calls + 1; return t * calls end",
  "function(t) for _, g in ipairs(few) do t = g(t) end return t:relu() end", "lt.abs", "nn.ReLU()", "nn.Tanh()",
  "function(t, ...) return (select('#', ...) > 9 and t or t * 1.5) end", "nn.Sequential(nn.Tanh(), broken, nn.ReLU())"}
local modules = {"nn.ReLU()", "nn.Tanh()", "broken", "nn.Linear(3, 3)", "nn.Sequential(nn.Linear(3, 3), broken)",
  "nn.Sequential(nn.ReLU(), nn.Linear(3, 3))", "hooked"}
local loops = {"for i = 1, #list do y = list[i](y) end", "for i, g in ipairs(list) do y = g(y) * i end",
  "for i = #list, 1, -1 do y = list[i](y) + i end", "for _, g in pairs(list) do y = g(y) end",
  "for i = 1, #list do local g = list[i]; if g ~= few[1] then y = g(y) end end", "y = all(list, y)",
  "for i = 1, 2 do for k, g in ipairs(list) do y = g(y) - k end end", "for i = 1, 3 do y = all(list, y) * i end",
  "for i = 1, #list do y = leaf(list[i](y)) end", "local i = 1; while list[i] do y = list[i](y); i = i + 1 end",
  "for i = 1, #list do y = pass(list[i], y) end", "for i = 1, #list do local ok, r = pcall(list[i], y); y = r end",
  "y = model(y)", "for i = 1, 2 do y = model(y) + i end",
  "local kept = {}; for i, g in ipairs(list) do y = g(y); kept[i] = y end; y = y + kept[1]",
  "local n = 0; for i, g in ipairs(list) do y = g(y); n = n + i; if n > 6 then break end end",
  "local add = function(t) y = y + t end; for i, g in ipairs(list) do add(g(y)) end"}
local around = {"y = y * 2", "y = y:sin()", "y = leaf(y)", "y = y + calls"}
local changes = {"list[#list + 1] = few[1]", "list[#list] = nil", "list[1], list[2] = list[2], list[1]", "total = 5",
  "few[1], few[2] = few[2], few[1]", "total = -5"}

local function filled(p, name, from, count)
  p.keep(p:line("%s = {}", name))
  for i = 1, count do p:line("%s[#%s + 1] = %s", name, name, p:pick(from)) end
  p.keep(p:line("if #%s == 0 then %s[1] = lt.abs end", name, name))
end

local function generate(p)
  p.keep(p:line("nn, total, calls = lt.nn, 0, 0"))
  p.keep(p:line("function leaf(t) %s return t:cos() end", p:chance(40) and "lt.graph_break()" or ""))
  p.keep(p:line("function pass(g, ...) return g(...) end"))
  p.keep(p:line("function all(list, t) for i = 1, #list do t = list[i](t) end return t end"))
  p.keep(p:line("Broken = nn.Module:extend('Broken'); function Broken:forward(t) return leaf(t + 1) * 2 end"))
  p.keep(p:line("broken, hooked = Broken(), nn.Tanh()"))
  p:line("hooked:register_forward_hook(function() %s end)", p:chance(50) and "lt.graph_break()" or "calls = calls + 1")
  local flat = {}
  for _, kind in ipairs(kinds) do
    if not kind:find "few" then flat[#flat + 1] = kind end
  end
  filled(p, "few", flat, 1 + p:random(3))
  filled(p, "list", kinds, 1 + p:random(7))
  p.keep(p:line("lt.manual_seed(1); model = nn.Sequential()"))
  for _ = 1, p:random(5) do p:line("model:append(%s)", p:pick(modules)) end
  local learns = p:chance(40)
  p.keep(p:line("w = data(9, 3, {requires_grad = %s})", tostring(learns)))
  p.keep(p:block("f = frame(function(x)", function()
    p.keep(p:line("local y = x * w"))
    for _ = 1, p:random(2) do
      if p:chance(40) then p:line("%s", p:pick(around)) end
      p:block("do", function() p:line("%s", p:pick(loops)) end)
    end
    if learns and p:chance(50) then p:line("w.grad = nil; y:sum():backward()") end
    p.keep(p:line("return y, total, calls"))
  end, "end)"))
  for call = 1, 2 + p:random(4) do
    if p:chance(30) then p:line("%s", p:pick(changes)) end
    p:line("try('f %d', f, data(%d, %d, 3))", call, call, p:chance(80) and 2 or 4)
  end
  if learns then p:line("see('grad', w.grad)") end
end

return {count = 40, generate = generate}
