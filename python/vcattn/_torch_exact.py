"""16-bit attention by PyTorch with the LSE: what a call is handed back to."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import UnsupportedError

#: PyTorch's own, also where a program has replaced the one in torch.nn.functional by ours.
native = torch._C._nn.scaled_dot_product_attention
#: Whether it takes fewer heads in k and v.
GQA = "enable_gqa" in (native.__doc__ or "")


def heads_of(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """k and v with every head repeated until they have q's count (PyTorch 2.4 has no GQA)."""
    repeats = q.shape[-3] // k.shape[-3]
    if repeats == 1:
        return k, v
    return k.repeat_interleave(repeats, -3), v.repeat_interleave(repeats, -3)


def exact(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    key_lengths: Tensor | None,
    scale: float | None,
    causal: bool,
    return_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """softmax(q k^T * scale) v on (B, H, S, d) tensors. ``causal`` is bottom-right aligned.

    Returns:
        (B, Hq, Sq, d) in q's dtype, and the natural-log LSE, float32 (B, Hq, Sq), if it is wanted.
    """
    k, v = k.to(q.dtype), v.to(q.dtype)
    # PyTorch's GQA has no fused kernel with a mask.
    grouped = GQA and q.is_cuda and mask is None and key_lengths is None and not return_lse
    if not grouped:
        k, v = heads_of(q, k, v)
    if (causal and q.shape[2] != k.shape[2]) or (
        causal and (mask is not None or key_lengths is not None)
    ):
        raise UnsupportedError(
            "recipe: PyTorch's attention has no bottom-right causal mask for this call", "recipe"
        )
    if key_lengths is not None:
        visible = torch.arange(k.shape[2], device=q.device) < key_lengths[:, None]
        mask = _combined(mask, visible[:, None, None, :])
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q.dtype)
    if q.shape[2] == 0 or k.shape[2] == 0:
        hidden = torch.full(q.shape[:3], -torch.inf, dtype=torch.float32, device=q.device)
        return torch.zeros_like(q), hidden if return_lse else None
    if not return_lse:
        options = {"enable_gqa": True} if k.shape[1] != q.shape[1] else {}
        return native(q, k, v, mask, is_causal=causal, scale=scale, **options), None
    return _with_lse(q, k, v, mask, scale, causal)


def _combined(mask: Tensor | None, visible: Tensor) -> Tensor:
    if mask is None:
        return visible
    if mask.dtype == torch.bool:
        return mask & visible
    return torch.where(visible, mask, -torch.inf)


def _with_lse(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None, causal: bool
) -> tuple[Tensor, Tensor]:
    aten = torch.ops.aten
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
        mask = mask.expand(*q.shape[:3], k.shape[2])
    if q.device.type == "cpu":
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=mask, scale=scale
        )
        return out, lse
    if mask is None and q.dtype != torch.float32 and q.shape[3] <= 256:
        out, lse = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)[:2]
    else:
        out, lse = aten._scaled_dot_product_efficient_attention(
            q, k, v, mask, True, 0.0, causal, scale=scale
        )[:2]
    return out, lse[..., : q.shape[2]]
