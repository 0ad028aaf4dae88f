---@meta
-- Annotations of joins, rearrangements, statistics, scans, products and draws; lutra.lua has the rest. Never loaded.

---@class lutra.Tensor
local Tensor = {}
---@class lutra
local lt = {}

-- joins and rearrangements
---@param tensors lutra.Tensor[]
---@param dim? integer
---@return lutra.Tensor
function lt.cat(tensors, dim) end
---@param tensors lutra.Tensor[]
---@param dim? integer
---@return lutra.Tensor
function lt.stack(tensors, dim) end
---@param tensors lutra.Tensor[]
---@return lutra.Tensor
function lt.hstack(tensors) end
---@param tensors lutra.Tensor[]
---@return lutra.Tensor
function lt.vstack(tensors) end
---@param tensors lutra.Tensor[]
---@return lutra.Tensor
function lt.dstack(tensors) end
---@param tensors lutra.Tensor[]
---@return lutra.Tensor
function lt.column_stack(tensors) end
---@param tensors lutra.Tensor[]
---@return lutra.Tensor
function lt.block_diag(tensors) end
---@param tensors lutra.Tensor[]
---@return lutra.Tensor
function lt.cartesian_prod(tensors) end
---@param dims integer|integer[]
---@return lutra.Tensor
function Tensor:flip(dims) end
lt.flip = Tensor.flip
---@return lutra.Tensor
function Tensor:fliplr() end
lt.fliplr = Tensor.fliplr
---@return lutra.Tensor
function Tensor:flipud() end
lt.flipud = Tensor.flipud
---@param shifts integer|integer[]
---@param dims? integer|integer[]
---@return lutra.Tensor
function Tensor:roll(shifts, dims) end
lt.roll = Tensor.roll
---@param k? integer
---@param dims? integer|integer[]
---@return lutra.Tensor
function Tensor:rot90(k, dims) end
lt.rot90 = Tensor.rot90
---@param source integer|integer[]
---@param destination integer|integer[]
---@return lutra.Tensor
function Tensor:movedim(source, destination) end
lt.movedim = Tensor.movedim
---@param dim integer
---@param sizes integer|integer[]
---@return lutra.Tensor
function Tensor:unflatten(dim, sizes) end
lt.unflatten = Tensor.unflatten
---@param size integer|integer[]
---@param stride integer|integer[]
---@param storage_offset? integer
---@return lutra.Tensor
function Tensor:as_strided(size, stride, storage_offset) end
lt.as_strided = Tensor.as_strided
---@param dimension integer
---@param size integer
---@param step integer
---@return lutra.Tensor
function Tensor:unfold(dimension, size, step) end
lt.unfold = Tensor.unfold
---@param offset? integer
---@param dim1? integer
---@param dim2? integer
---@return lutra.Tensor
function Tensor:diagonal(offset, dim1, dim2) end
lt.diagonal = Tensor.diagonal
---@param src lutra.Tensor
---@param offset? integer
---@param dim1? integer
---@param dim2? integer
---@return lutra.Tensor
function Tensor:diagonal_scatter(src, offset, dim1, dim2) end
lt.diagonal_scatter = Tensor.diagonal_scatter
---@param offset? integer
---@param dim1? integer
---@param dim2? integer
---@return lutra.Tensor
function Tensor:diag_embed(offset, dim1, dim2) end
lt.diag_embed = Tensor.diag_embed
---@param diagonal? integer
---@return lutra.Tensor
function Tensor:diag(diagonal) end
lt.diag = Tensor.diag
---@param offset? integer
---@return lutra.Tensor
function Tensor:diagflat(offset) end
lt.diagflat = Tensor.diagflat
---@return lutra.Tensor
function Tensor:trace() end
lt.trace = Tensor.trace
---@param diagonal? integer
---@return lutra.Tensor
function Tensor:tril(diagonal) end
lt.tril = Tensor.tril
Tensor.tril_ = Tensor.tril
---@param diagonal? integer
---@return lutra.Tensor
function Tensor:triu(diagonal) end
lt.triu = Tensor.triu
Tensor.triu_ = Tensor.triu
---@param pad integer|integer[]
---@param value? number
---@return lutra.Tensor
function Tensor:constant_pad_nd(pad, value) end
lt.constant_pad_nd = Tensor.constant_pad_nd
---@param pad integer|integer[]
---@param mode? string
---@param value? number
---@return lutra.Tensor
function Tensor:pad(pad, mode, value) end
lt.pad = Tensor.pad
---@param upscale_factor integer
---@return lutra.Tensor
function Tensor:pixel_shuffle(upscale_factor) end
lt.pixel_shuffle = Tensor.pixel_shuffle
---@param downscale_factor integer
---@return lutra.Tensor
function Tensor:pixel_unshuffle(downscale_factor) end
lt.pixel_unshuffle = Tensor.pixel_unshuffle
---@param groups integer
---@return lutra.Tensor
function Tensor:channel_shuffle(groups) end
lt.channel_shuffle = Tensor.channel_shuffle
---@param n? integer
---@param dim? integer
---@param prepend? lutra.Tensor
---@param append? lutra.Tensor
---@return lutra.Tensor
function Tensor:diff(n, dim, prepend, append) end
lt.diff = Tensor.diff

-- statistics and norms
---@param dim? integer
---@param keepdim? boolean
---@param options? {dtype?: lutra.DType}
---@return lutra.Tensor
function Tensor:prod(dim, keepdim, options) end
lt.prod = Tensor.prod
---@param dim? integer|integer[]
---@param keepdim? boolean
---@param options? {dtype?: lutra.DType}
---@return lutra.Tensor
function Tensor:nansum(dim, keepdim, options) end
lt.nansum = Tensor.nansum
---@param dim? integer|integer[]
---@param keepdim? boolean
---@param options? {dtype?: lutra.DType}
---@return lutra.Tensor
function Tensor:nanmean(dim, keepdim, options) end
lt.nanmean = Tensor.nanmean
---@param dim? integer|integer[]
---@return lutra.Tensor
function Tensor:count_nonzero(dim) end
lt.count_nonzero = Tensor.count_nonzero
---@param options? {dim?: integer, keepdim?: boolean}
---@return lutra.Tensor, lutra.Tensor
function Tensor:aminmax(options) end
lt.aminmax = Tensor.aminmax
---@param dim? integer|integer[]
---@param options? {correction?: number, keepdim?: boolean}
---@return lutra.Tensor
function Tensor:var(dim, options) end
lt.var = Tensor.var
---@param dim? integer|integer[]
---@param options? {correction?: number, keepdim?: boolean}
---@return lutra.Tensor
function Tensor:std(dim, options) end
lt.std = Tensor.std
---@param dim? integer|integer[]
---@param options? {correction?: number, keepdim?: boolean}
---@return lutra.Tensor, lutra.Tensor
function Tensor:var_mean(dim, options) end
lt.var_mean = Tensor.var_mean
---@param dim? integer|integer[]
---@param options? {correction?: number, keepdim?: boolean}
---@return lutra.Tensor, lutra.Tensor
function Tensor:std_mean(dim, options) end
lt.std_mean = Tensor.std_mean
---@param dim integer|integer[]
---@param keepdim? boolean
---@return lutra.Tensor
function Tensor:logsumexp(dim, keepdim) end
lt.logsumexp = Tensor.logsumexp
---@param ord? number
---@param dim? integer|integer[]
---@param keepdim? boolean
---@param options? {dtype?: lutra.DType}
---@return lutra.Tensor
function Tensor:linalg_vector_norm(ord, dim, keepdim, options) end
lt.linalg_vector_norm = Tensor.linalg_vector_norm
---@param other lutra.Tensor
---@param p? number
---@return lutra.Tensor
function Tensor:dist(other, p) end
lt.dist = Tensor.dist
---@param x1 lutra.Tensor
---@param x2 lutra.Tensor
---@param p? number
---@param compute_mode? string
---@return lutra.Tensor
function lt.cdist(x1, x2, p, compute_mode) end
---@param other lutra.Tensor
---@param options? {dim?: integer}
---@return lutra.Tensor
function Tensor:linalg_cross(other, options) end
lt.linalg_cross = Tensor.linalg_cross
---@param other lutra.Tensor
---@param dim? integer
---@return lutra.Tensor
function Tensor:cross(other, dim) end
lt.cross = Tensor.cross
---@param y lutra.Tensor
---@param x? lutra.Tensor
---@param options? {dx?: number, dim?: integer}
---@return lutra.Tensor
function lt.trapezoid(y, x, options) end
---@param y lutra.Tensor
---@param x? lutra.Tensor
---@param options? {dx?: number, dim?: integer}
---@return lutra.Tensor
function lt.cumulative_trapezoid(y, x, options) end
---@param options? {correction?: integer}
---@return lutra.Tensor
function Tensor:cov(options) end
lt.cov = Tensor.cov
---@return lutra.Tensor
function Tensor:corrcoef() end
lt.corrcoef = Tensor.corrcoef

-- scans
---@param dim integer
---@param options? {dtype?: lutra.DType}
---@return lutra.Tensor
function Tensor:cumsum(dim, options) end
lt.cumsum = Tensor.cumsum
Tensor.cumsum_ = Tensor.cumsum
---@param dim integer
---@param options? {dtype?: lutra.DType}
---@return lutra.Tensor
function Tensor:cumprod(dim, options) end
lt.cumprod = Tensor.cumprod
Tensor.cumprod_ = Tensor.cumprod
---@param dim integer
---@return lutra.Tensor
function Tensor:logcumsumexp(dim) end
lt.logcumsumexp = Tensor.logcumsumexp
---@param dim integer
---@return lutra.Tensor, lutra.Tensor
function Tensor:cummax(dim) end
lt.cummax = Tensor.cummax
---@param dim integer
---@return lutra.Tensor, lutra.Tensor
function Tensor:cummin(dim) end
lt.cummin = Tensor.cummin

-- products made of mm and bmm
---@param mat1 lutra.Tensor
---@param mat2 lutra.Tensor
---@param options? {beta?: number, alpha?: number}
---@return lutra.Tensor
function Tensor:addmm(mat1, mat2, options) end
lt.addmm = Tensor.addmm
Tensor.addmm_ = Tensor.addmm
---@param batch1 lutra.Tensor
---@param batch2 lutra.Tensor
---@param options? {beta?: number, alpha?: number}
---@return lutra.Tensor
function Tensor:addbmm(batch1, batch2, options) end
lt.addbmm = Tensor.addbmm
Tensor.addbmm_ = Tensor.addbmm
---@param batch1 lutra.Tensor
---@param batch2 lutra.Tensor
---@param options? {beta?: number, alpha?: number}
---@return lutra.Tensor
function Tensor:baddbmm(batch1, batch2, options) end
lt.baddbmm = Tensor.baddbmm
Tensor.baddbmm_ = Tensor.baddbmm
---@param mat lutra.Tensor
---@param vec lutra.Tensor
---@param options? {beta?: number, alpha?: number}
---@return lutra.Tensor
function Tensor:addmv(mat, vec, options) end
lt.addmv = Tensor.addmv
Tensor.addmv_ = Tensor.addmv
---@param vec1 lutra.Tensor
---@param vec2 lutra.Tensor
---@param options? {beta?: number, alpha?: number}
---@return lutra.Tensor
function Tensor:addr(vec1, vec2, options) end
lt.addr = Tensor.addr
Tensor.addr_ = Tensor.addr
---@param vec lutra.Tensor
---@return lutra.Tensor
function Tensor:mv(vec) end
lt.mv = Tensor.mv
---@param other lutra.Tensor
---@return lutra.Tensor
function Tensor:dot(other) end
lt.dot = Tensor.dot
---@param other lutra.Tensor
---@return lutra.Tensor
function Tensor:vdot(other) end
lt.vdot = Tensor.vdot
---@param vec2 lutra.Tensor
---@return lutra.Tensor
function Tensor:outer(vec2) end
lt.outer = Tensor.outer
---@param other lutra.Tensor
---@return lutra.Tensor
function Tensor:inner(other) end
lt.inner = Tensor.inner
---@param other lutra.Tensor
---@return lutra.Tensor
function Tensor:kron(other) end
lt.kron = Tensor.kron
---@param input1 lutra.Tensor
---@param input2 lutra.Tensor
---@param weight lutra.Tensor
---@param bias? lutra.Tensor
---@return lutra.Tensor
function lt.bilinear(input1, input2, weight, bias) end
---@param other lutra.Tensor
---@param options? {dim?: integer}
---@return lutra.Tensor
function Tensor:linalg_vecdot(other, options) end
lt.linalg_vecdot = Tensor.linalg_vecdot
---@param tensors lutra.Tensor[]
---@return lutra.Tensor
function lt.linalg_multi_dot(tensors) end
---@param n integer
---@return lutra.Tensor
function Tensor:matrix_power(n) end
lt.matrix_power = Tensor.matrix_power
---@param equation string
---@param operands lutra.Tensor[]
---@return lutra.Tensor
function lt.einsum(equation, operands) end

-- dropout and draws
---@param p? number
---@param training? boolean
---@param inplace? boolean
---@return lutra.Tensor
function Tensor:dropout(p, training, inplace) end
lt.dropout = Tensor.dropout
---@param p? number
---@param training? boolean
---@param inplace? boolean
---@return lutra.Tensor
function Tensor:dropout1d(p, training, inplace) end
lt.dropout1d = Tensor.dropout1d
---@param p? number
---@param training? boolean
---@param inplace? boolean
---@return lutra.Tensor
function Tensor:dropout2d(p, training, inplace) end
lt.dropout2d = Tensor.dropout2d
---@param p? number
---@param training? boolean
---@param inplace? boolean
---@return lutra.Tensor
function Tensor:dropout3d(p, training, inplace) end
lt.dropout3d = Tensor.dropout3d
---@param p? number
---@param training? boolean
---@param inplace? boolean
---@return lutra.Tensor
function Tensor:alpha_dropout(p, training, inplace) end
lt.alpha_dropout = Tensor.alpha_dropout
---@param p? number
---@param training? boolean
---@param inplace? boolean
---@return lutra.Tensor
function Tensor:feature_alpha_dropout(p, training, inplace) end
lt.feature_alpha_dropout = Tensor.feature_alpha_dropout
---@param p? number
---@return lutra.Tensor
function Tensor:bernoulli(p) end
lt.bernoulli = Tensor.bernoulli
---@param num_samples integer
---@param replacement? boolean
---@return lutra.Tensor
function Tensor:multinomial(num_samples, replacement) end
lt.multinomial = Tensor.multinomial

-- lists of tensors
---@param split_size integer|integer[]
---@param dim? integer
---@return lutra.Tensor[]
function Tensor:split(split_size, dim) end
Tensor.split_with_sizes, Tensor.tensor_split, Tensor.chunk = Tensor.split, Tensor.split, Tensor.split
---@param indices_or_sections integer|integer[]
---@return lutra.Tensor[]
function Tensor:hsplit(indices_or_sections) end
Tensor.vsplit, Tensor.dsplit = Tensor.hsplit, Tensor.hsplit
---@param dim? integer
---@return lutra.Tensor[]
function Tensor:unbind(dim) end
---@param ... lutra.Tensor
---@return lutra.Tensor[]
function lt.broadcast_tensors(...) end
---@param tensors lutra.Tensor[]
---@param options? {indexing?: "ij"|"xy"}
---@return lutra.Tensor[]
function lt.meshgrid(tensors, options) end
---@param repeats integer|lutra.Tensor
---@param dim? integer
---@return lutra.Tensor
function Tensor:repeat_interleave(repeats, dim) end
---@param classes lutra.Tensor
---@param num_classes? integer
---@return lutra.Tensor
function lt.one_hot(classes, num_classes) end
