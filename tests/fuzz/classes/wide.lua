-- 64-bit integers that change from call to call: computed with, compared, converted to numbers that become sizes,
-- indices and bounds, kept in tables. Some calls pass ones that no double holds, unsigned ones and numbers.
local values = {"0LL", "1LL", "2LL", "3LL", "4LL", "5LL", "6LL", "7LL", "-1LL", "-2LL", "-3LL", "8LL", "12LL", "-7LL"}
local odd = {"3ULL", "2", "0x7fffffffffffffffLL", "9007199254740992LL", "-9007199254740992LL", "9007199254740993LL",
  "nil", "2.5", "'4'", "0xffffffffffffffffULL", "4611686018427387904LL", "-9223372036854775807LL - 1LL"}
local terms = {"k", "j", "k + 1LL", "k + 1", "1 - k", "k - j", "k * 2LL", "k * j", "-k", "k % 5LL", "k / 3LL",
  "k % 4", "7LL - k", "k + n", "(k + 1) * 2", "k ^ 2LL", "0LL * k", "k + j + 1LL", "k - k", "bit.band(k, 7)",
  "-(k - j)", "k % j", "k / -2LL", "k + 0.5", "2LL ^ k", "k + 2ULL", "3LL"}
-- Sizes fit in memory, because compiled code does not make unused tensors and so would not run out of memory.
local uses = {"x * tonumber(%s)", "x[tonumber(%s)]", "lt.zeros(math.min(tonumber(%s), 1e6), 2)", "tonumber(%s)", "%s",
  "tostring(%s)", "{%s, %s}", "type(%s)", "x:narrow(0, 0, tonumber(%s))", "list[tonumber(%s)]",
  "('%%d'):format(tonumber(%s))", "kept[%s]", "rawequal(%s, k)", "tonumber(%s) + tonumber(%s)", "x * 2",
  "'at ' .. tonumber(%s)"}
local writes = {"if %s < %s then y = y * 2 end", "if %s == %s then y = y - 1 end", "if %s <= 3 then y = y + 1 end",
  "k = %s", "j = %s",
  "for i = 1, math.min(tonumber(%s), 9) do y = y + i end", "last = %s", "kept[1] = %s", "kept[#kept + 1] = %s",
  "total = total + tonumber(%s)", "y = y * tonumber(%s)", "if %s ~= 2LL then y = y + x end", "y:add_(tonumber(%s))",
  "if k > 2.5 then y = -y end", "hold = function() return %s end"}

local function fill(p, text)
  return (text:gsub("%%(.)", function(c) return c == "%" and "%" or "(" .. p:pick(terms) .. ")" end))
end

local function generate(p)
  p.keep(p:line("list, kept, total, last, hold = {5, 6, 7, 8}, {}, 0, 0, nil"))
  p.keep(p:block("f = frame(function(x, k, j)", function()
    p.keep(p:line("local y, n = x * 1, x.shape[1]"))
    for i = 1, p:random(4) do
      if p:chance(60) then
        p:line("%s", fill(p, p:pick(writes)))
      else
        p:line("local r%d = %s", i, fill(p, p:pick(uses)))
      end
    end
    p.keep(p:line("return y, %s, %s", fill(p, p:pick(uses)), p:pick {"k", "rawequal(k, j)", "tostring(j)", "x + 1"}))
  end, "end)"))
  local steady = p:chance(50) and p:pick(values)
  for call = 1, 5 + p:random(8) do
    local function value() return "(" .. (p:chance(8) and p:pick(odd) or p:pick(values) .. " + 0") .. ")" end
    p:line("do local a = %s; try('f %d', f, data(%d, 5, 3), a, %s) end", value(), call, call,
      steady or p:pick {value(), "a", value()})
    if p:chance(20) then p:line("if hold then try('held %d', hold) end", call) end
  end
  p:line("see('kept', kept, total, tostring(last))")
end

return {count = 40, generate = generate}
