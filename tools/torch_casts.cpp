#include "minim/tools/torch_casts.h"

#include <string_view>

namespace minim {
namespace {

using enum Cast;

constexpr const char* kMatmul = "matmul (or einsum) computes it, under the same cast";
constexpr const char* kCells = "no recurrent cells";
constexpr const char* kFunction = "no such function; one of your own is a row with its cast";
constexpr const char* kLoss = "no such loss; made of rows, its exponentials and sums are fp32";
constexpr const char* kLinalg = "no linear algebra beyond products";
constexpr const char* kImages = "no resampling of images";

// PyTorch 2: aten/src/ATen/autocast_mode.h and, for composites, docs/source/amp.md.
constexpr TorchCasts kCasts[] = {
    // lower_precision_fp
    {"matmul __matmul__", lower, "matmul", nullptr},
    {"linear", lower, "linear", nullptr},
    {"conv2d", lower, "conv2d", nullptr},
    {"scaled_dot_product_attention", lower, "scaled_dot_product_attention", nullptr},
    {"mm mv bmm addmm addmv addr addbmm baddbmm einsum chain_matmul linalg_multi_dot multi_dot "
     "linalg_vecdot",
     lower, nullptr, kMatmul},
    {"_convolution convolution cudnn_convolution", lower, nullptr,
     "conv2d is the one convolution, whatever computes it"},
    {"conv1d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d "
     "cudnn_convolution_transpose",
     lower, nullptr, "convolutions are of images and not transposed"},
    {"prelu", lower, nullptr,
     "leaky_relu has a number for its slope, not a weight that would be cast"},
    {"_thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
     "LSTMCell GRUCell RNNCell",
     lower, nullptr, kCells},
    {"_scaled_dot_product_flash_attention", lower, nullptr,
     "a kernel of scaled_dot_product_attention, not an op"},
    // fp32
    {"exp", fp32, "exp", nullptr},
    {"log", fp32, "log", nullptr},
    {"log1p", fp32, "log1p", nullptr},
    {"rsqrt", fp32, "rsqrt", nullptr},
    {"pow __pow__ __rpow__", fp32, "pow", nullptr},
    {"pow.Tensor_Scalar", fp32, "square", nullptr},
    {"softplus", fp32, "softplus", nullptr},
    {"layer_norm native_layer_norm", fp32, "layer_norm", nullptr},
    {"rms_norm", fp32, "rms_norm", nullptr},
    {"group_norm", fp32, "group_norm", nullptr},
    {"normalize", fp32, "normalize", nullptr},
    {"cosine_similarity", fp32, "cosine_similarity", nullptr},
    {"nll_loss nll_loss2d", fp32, "nll_loss", nullptr},
    {"cross_entropy", fp32, "cross_entropy", nullptr},
    {"kl_div", fp32, "kl_div", nullptr},
    {"l1_loss", fp32, "l1", nullptr},
    {"smooth_l1_loss", fp32, "smooth_l1", nullptr},
    {"mse_loss", fp32, "mse", nullptr},
    {"binary_cross_entropy_with_logits", fp32, "bce_with_logits", nullptr},
    {"logsumexp", fp32, "logsumexp", nullptr},
    {"reciprocal", fp32, "reciprocal", nullptr},
    {"__rdiv__ __rtruediv__", fp32, "div",
     "1 / x is the row div, rounded once to the dtype that x / y has; reciprocal(x) is fp32"},
    {"acos asin cosh erfinv expm1 log10 log2 sinh tan", fp32, nullptr, kFunction},
    {"frobenius_norm nuclear_norm", fp32, nullptr, kLinalg},
    {"poisson_nll_loss cosine_embedding_loss hinge_embedding_loss huber_loss margin_ranking_loss "
     "multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss",
     fp32, nullptr, kLoss},
    {"softmin", fp32, nullptr, "softmax(-x)"},
    {"dist", fp32, nullptr, "norm(x - y)"},
    {"pdist cdist renorm", fp32, nullptr, kLinalg},
    {"upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
     "_upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d "
     "_upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa",
     fp32, nullptr, kImages},
    // fp32_set_opt_dtype: the result is fp32 unless the call names its dtype
    {"sum", fp32, "sum", nullptr},
    {"prod", fp32, "prod", nullptr},
    {"cumsum", fp32, "cumsum", nullptr},
    {"softmax", fp32, "softmax", nullptr},
    {"log_softmax", fp32, "log_softmax", nullptr},
    {"linalg_vector_norm", fp32, "norm", nullptr},
    {"cumprod", fp32, nullptr, kFunction},
    {"linalg_matrix_norm", fp32, nullptr, kLinalg},
    // fp32_append_dtype
    {"norm", fp32, "norm", nullptr},
    // promote
    {"scatter_add", promote, "scatter_add",
     "the region's other 16-bit type is an error there; here it is promoted as anywhere: to f32"},
    {"dot vdot tensordot", promote, nullptr,
     "products of vectors are matmul: fp32 sums inside, as of matrices"},
    {"addcdiv addcmul atan2 bilinear cross grid_sampler index_put", promote, nullptr, kFunction},
    // banned
    {"binary_cross_entropy", banned, "bce", nullptr},
};

}  // namespace

std::span<const TorchCasts> torch_casts() { return kCasts; }

const OpRow& row_of(const TorchCasts& entry) {
  for (const OpRow* row : all_ops())
    if (row->name == std::string_view(entry.row)) return *row;
  fail("ops.def has no row '", entry.row, "'");
}

}  // namespace minim
