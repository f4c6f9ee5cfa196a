"""PyTorch's functions of layers and losses, as calls of minim."""
import math

from .calls import Missing, Outside
from .entries import ENTRIES, entry, no


def softmax(op, sign=1):
    def call(m, x, dim=None, dtype=None, **_):
        if dim is None:
            raise Outside("no axis is named")
        x = x if sign > 0 else m.neg(x)
        return getattr(m, op)(x if dtype is None else m.to(x, dtype=dtype), dim=dim)
    return call


for variant in ("", "/with_dtype"):
    ENTRIES["softmax" + variant] = softmax("softmax")
    ENTRIES["log_softmax" + variant] = softmax("log_softmax")
    ENTRIES["nn.functional.softmin" + variant] = softmax("softmax", -1)


def over_last(m, x, normalized_shape, op, *parameters, eps):
    """A norm over the last axes, which in minim is over the last one."""
    shape, count = x.shape, len(normalized_shape)
    if count == 1:
        return getattr(m, op)(x, *parameters, eps=eps)
    flat = math.prod(normalized_shape)
    parameters = [p and m.reshape(m.contiguous(p), shape=[flat]) for p in parameters]
    y = getattr(m, op)(m.reshape(m.contiguous(x), shape=shape[:len(shape) - count] + [flat]), *parameters, eps=eps)
    return m.reshape(y, shape=shape)


@entry("nn.functional.layer_norm")
def layer_norm(m, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    return over_last(m, x, normalized_shape, "layer_norm", weight, bias, eps=eps)


@entry("nn.functional.rms_norm")
def rms_norm(m, x, normalized_shape, weight=None, eps=None):
    if eps is None:
        raise Outside("eps of PyTorch's own")  # samples.py names it
    return over_last(m, x, normalized_shape, "rms_norm", weight, eps=eps)


@entry("nn.functional.group_norm")
def group_norm(m, x, num_groups, weight=None, bias=None, eps=1e-5):
    return m.group_norm(x, weight, bias, num_groups=num_groups, eps=eps)


@entry("nn.functional.instance_norm")
def instance_norm(m, x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True,
                  momentum=0.1, eps=1e-5, **_):
    no(running_statistics=running_mean or running_var)
    return m.group_norm(x, weight, bias, num_groups=x.shape[1], eps=eps)


@entry("nn.functional.batch_norm", "nn.functional.batch_norm/without_cudnn")
def batch_norm(m, x, running_mean=None, running_var=None, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    if not training:
        return m.batch_norm(x, running_mean, running_var, weight, bias, eps=eps)
    if running_mean is None:
        return m.batch_norm(x, None, None, weight, bias, eps=eps)
    return m.batch_norm_update(x, running_mean, running_var, weight, bias, momentum=momentum, eps=eps, results=3)[0]


def pair(n):
    return [n] if isinstance(n, int) else list(n)


def padding_of(padding, weight_shape, dilation):
    if padding == "valid":
        return [0]
    if padding != "same":
        return pair(padding)
    dilation = pair(dilation) * 2
    reach = [(k - 1) * d for k, d in zip(weight_shape[2:], dilation)]
    if any(r % 2 for r in reach):
        raise Missing("padding='same' of an even window")
    return [r // 2 for r in reach]


@entry("nn.functional.conv2d")
def conv2d(m, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    batched = x if x.ndim == 4 else m.unsqueeze(x, axis=0)
    y = m.conv2d(batched, weight, bias, stride=pair(stride), padding=padding_of(padding, weight.shape, dilation),
                 dilation=pair(dilation), groups=groups)
    return y if x.ndim == 4 else m.squeeze(y, axis=0)


@entry("nn.functional.conv1d")
def conv1d(m, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    wide = m.unsqueeze(x, axis=-2)
    batched = wide if x.ndim == 3 else m.unsqueeze(wide, axis=0)
    y = m.conv2d(batched, m.unsqueeze(weight, axis=-2), bias, stride=[1] + pair(stride), groups=groups,
                 padding=[0] + padding_of(padding, weight.shape, dilation), dilation=[1] + pair(dilation))
    y = m.squeeze(y, axis=-2)
    return y if x.ndim == 3 else m.squeeze(y, axis=0)


@entry("nn.functional.max_pool2d")
def max_pool2d(m, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    no(ceil_mode=ceil_mode, return_indices=return_indices)
    return m.max_pool2d(x, kernel_size=pair(kernel_size), stride=stride and pair(stride), padding=pair(padding),
                        dilation=pair(dilation))


@entry("nn.functional.avg_pool2d")
def avg_pool2d(m, x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    no(ceil_mode=ceil_mode, divisor_override=divisor_override)
    return m.avg_pool2d(x, kernel_size=pair(kernel_size), stride=stride and pair(stride), padding=pair(padding),
                        count_include_pad=count_include_pad)


def flat_window(n):
    return None if n is None or n == () else [1] + pair(n)


@entry("nn.functional.max_pool1d")
def max_pool1d(m, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    no(ceil_mode=ceil_mode, return_indices=return_indices)
    y = m.max_pool2d(m.unsqueeze(x, axis=-2), kernel_size=flat_window(kernel_size), stride=flat_window(stride),
                     padding=[0] + pair(padding), dilation=flat_window(dilation))
    return m.squeeze(y, axis=-2)


@entry("nn.functional.avg_pool1d")
def avg_pool1d(m, x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    no(ceil_mode=ceil_mode)
    y = m.avg_pool2d(m.unsqueeze(x, axis=-2), kernel_size=flat_window(kernel_size), stride=flat_window(stride),
                     padding=[0] + pair(padding), count_include_pad=count_include_pad)
    return m.squeeze(y, axis=-2)


@entry("nn.functional.scaled_dot_product_attention")
def attention(m, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p:
        raise Outside("random numbers")
    if attn_mask is not None and attn_mask.dtype.is_floating_point:
        raise Missing("a floating attn_mask")
    return m.scaled_dot_product_attention(q, k, v, attn_mask, causal=is_causal, scale=scale)


@entry("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu")
def flash_attention(m, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return [attention(m, q, k, v, attn_mask, dropout_p, is_causal, scale)]


# Losses

def classes_last(m, x):
    """PyTorch has the classes in axis 1, minim in the last."""
    return x if x.ndim <= 2 else m.permute(x, order=[0, *range(2, x.ndim), 1])


@entry("nn.functional.cross_entropy")
def cross_entropy(m, x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0, **_):
    if target.dtype.is_floating_point:
        raise Missing("probabilities as targets")
    no(weight=weight)
    return m.cross_entropy(classes_last(m, x), target, ignore_index=ignore_index, reduction=reduction,
                           label_smoothing=label_smoothing)


@entry("nn.functional.nll_loss")
def nll_loss(m, x, target, weight=None, ignore_index=-100, reduction="mean", **_):
    no(weight=weight)
    return m.nll_loss(classes_last(m, x), target, ignore_index=ignore_index, reduction=reduction)


def pair_loss(op):
    def call(m, x, target, weight=None, pos_weight=None, reduction="mean", **attrs):
        no(weight=weight, pos_weight=pos_weight)
        return getattr(m, op)(x, target, reduction=reduction, **attrs)
    return call


for name, op in {"mse_loss": "mse", "l1_loss": "l1", "smooth_l1_loss": "smooth_l1", "kl_div": "kl_div",
                 "binary_cross_entropy": "bce", "binary_cross_entropy_with_logits": "bce_with_logits"}.items():
    ENTRIES["nn.functional." + name] = pair_loss(op)


@entry("nn.functional.huber_loss")
def huber_loss(m, x, target, reduction="mean", delta=1.0, weight=None):
    no(weight=weight)
    y = m.smooth_l1(x, target, reduction=reduction, beta=delta)
    return y if delta == 1 else m.mul(y, delta)
