-- nn.functional: the ops that PyTorch keeps in that namespace, as plain fields that hold the native functions themselves.
local lt = ...

local names = {
  "cross_entropy", "dropout", "elu", "embedding", "gelu", "layer_norm", "leaky_relu", "linear", "log_softmax", "logsigmoid", "mse_loss",
  "nll_loss", "one_hot", "pad", "relu", "relu_", "scaled_dot_product_attention", "selu", "sigmoid", "silu", "softmax", "softplus",
  "tanh",
}

local functional = {}
for _, name in ipairs(names) do functional[name] = lt[name] end
return functional
