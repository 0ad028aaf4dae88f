-- lt.backends: settings of the devices' libraries, as fields that can be read and set: cudnn.allow_tf32,
-- cuda.matmul.allow_tf32.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local native = lt._native

-- Returns a table whose fields {name = {get, set}} are boolean settings of the process.
local function settings(where, fields)
  local function field_of(name)
    return fields[name] or fail("%s: unknown field '%s'%s", where, tostring(name), errors.known(name, fields))
  end
  return setmetatable({}, {
    __index = function(_, name) return field_of(name)[1]() end,
    __newindex = function(_, name, value)
      local field = field_of(name)
      if type(value) ~= "boolean" then fail("%s.%s: must be true or false, got %s", where, name, tostring(value)) end
      field[2](value)
    end,
  })
end

return {
  cudnn = settings("backends.cudnn", {allow_tf32 = {native.get_convolution_tf32, native.set_convolution_tf32}}),
  cuda = {
    matmul = settings("backends.cuda.matmul", {
      allow_tf32 = {
        function() return lt.get_float32_matmul_precision() ~= "highest" end,
        function(allowed) lt.set_float32_matmul_precision(allowed and "high" or "highest") end,
      },
    }),
  },
}
