-- Recorded by record.py: what PyTorch answers. Do not edit.
local inf, nan = math.huge, 0 / 0
return {
{name = 'arange', code = 'lt.arange(2, 11, 3)',
 inputs = {},
 results = {{dtype = "int64", shape = {3}, 2, 5, 8}}, grads = {},
},
{name = 'full', code = 'lt.full({2, 2}, 3.5)',
 inputs = {},
 results = {{dtype = "float32", shape = {2, 2}, 3.5, 3.5, 3.5, 3.5}}, grads = {},
},
}
