-- nn.functional: the ops that PyTorch keeps in that namespace, as plain fields that hold the native functions themselves.
local lt = ...

local names = {"cross_entropy", "layer_norm", "rms_norm", "scaled_dot_product_attention", "linear", "log_softmax", "mse_loss", "nll_loss", "relu", "relu_", "sigmoid", "softmax", "tanh"}

local functional = {}
for _, name in ipairs(names) do functional[name] = assert(lt[name], name) end
return functional
