-- nn.functional: the ops that PyTorch keeps in that namespace, as plain fields that hold the native functions.
local lt, use = ...

local names = {
  -- activations; most have an in-place form too
  "celu", "elu", "gelu", "glu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log_softmax",
    "logsigmoid", "mish", "prelu",
  "relu", "relu6", "rrelu", "selu", "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink", "softsign",
    "tanh", "tanhshrink", "threshold",
  -- losses and distances
  "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity",
    "cross_entropy", "gaussian_nll_loss",
  "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
  "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "normalize",
  "pairwise_distance", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
  -- products, norms, attention
  "embedding", "layer_norm", "linear", "rms_norm", "scaled_dot_product_attention",
  -- shapes
  "bilinear", "channel_shuffle", "one_hot", "pad", "pdist", "pixel_shuffle", "pixel_unshuffle",
  -- dropout
  "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "gumbel_softmax",
  -- windows, statistics
  "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d",
    "avg_pool2d", "batch_norm", "conv1d",
  "conv2d", "conv_transpose1d", "conv_transpose2d", "group_norm", "instance_norm", "local_response_norm", "max_pool1d",
    "max_pool2d",
  "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices", "lp_pool1d", "lp_pool2d",
    "max_pool1d_with_indices",
  "max_pool2d_with_indices", "max_unpool1d", "max_unpool2d",
  -- resampling
  "affine_grid", "grid_sample", "interpolate", "upsample", "upsample_bilinear", "upsample_nearest",
}

local functional, own = {}, lt._native.functional -- own: variants that take more than the function of lt
for _, name in ipairs(names) do
  functional[name] = assert(own[name] or lt[name], name)
  functional[name .. "_"] = rawget(lt, name .. "_")
end

functional.unfold, functional.fold = lt.im2col, lt.col2im -- lt.unfold is the view
return use("lazy").fill(functional, {}, {["nn.bags"] = "embedding_bag", ["nn.fractional"] = "fractional_max_pool2d",
  ["nn.losses"] = "ctc_loss triplet_margin_with_distance_loss"})
