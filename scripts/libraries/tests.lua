-- luaunit and luassert: tests that pass, fail and raise.
local lu = require "luaunit"
TestThings = {}
function TestThings:setUp() self.list = {1, 2, 3} end
function TestThings:testEqual() lu.assertEquals(self.list, {1, 2, 3}) end
function TestThings:testFails() lu.assertEquals({1, {2, 3}}, {1, {2, 4}}) end
function TestThings:testItems() lu.assertItemsEquals({3, 1, 2}, self.list) end
function TestThings:testError() lu.assertErrorMsgContains("no", function() error "no way" end) end
function TestThings:testAlmost() lu.assertAlmostEquals(1, 1.0001, 0.001) end
function TestThings:testText() lu.assertStrMatches("abc", "a.c") end
local runner = lu.LuaUnit.new()
runner:setOutputType "nil"
print(runner:runSuite("-o", "nil"))

local assert = require "luassert"
local function try(f, ...)
  local ok, why = pcall(f, ...)
  print(ok, ok or tostring(type(why) == "table" and why.message or why):gsub("0x%x+", "ADDRESS"))
end
try(assert.are.equal, 1, 1)
try(assert.are.same, {1, {2}}, {1, {2}})
try(assert.are.same, {1, {2}}, {1, {3}})
try(assert.has_error, function() error "x" end, "x")
try(assert.is_true, false)
try(assert.is_not.falsy, 1)
local spy = require "luassert.spy"
local s = spy.new(function(a, b) return a + b end)
print(s(1, 2), s(3, 4))
try(function() assert.spy(s).was.called(2) end)
try(function() assert.spy(s).was.called_with(3, 4) end)
