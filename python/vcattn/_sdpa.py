"""``vcattn.sdpa``: a drop-in for torch.nn.functional.scaled_dot_product_attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import UnsupportedError
from .recipe import Recipe, spec_of
from .schedule import AUTO, TORCH

if TYPE_CHECKING:
    import torch


def sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    recipe: str | Recipe | None = None,
    backend: str = "auto",
) -> torch.Tensor:
    """SDPA's arguments, shapes and meanings, (B, H, S, d). What vcattn does not do (gradients, a
    causal mask over Sq != Skv, dimensions above 256, an unsupported GPU, ...) PyTorch computes, and
    so it does dense calls on CUDA tensors that it is estimated to be faster at, unless ``recipe``
    or ``backend`` is given or the active schedule has ``short="vcattn"``. There is one warning per
    reason; ``vcattn.backend_in_use()`` counts both.

    Raises:
        UnsupportedError: dropout_p > 0.
    """
    import torch

    from ._torch_attention import autocast
    from ._torch_exact import exact, heads_of, native
    from ._torch_op import choose, handed_back

    if dropout_p > 0.0:
        raise UnsupportedError(f"dropout_p: {dropout_p} was given (supported: 0)", "dropout_p")
    reason = _refusal(query, key, value, attn_mask, is_causal, enable_gqa)
    if reason:
        handed_back(reason)
        if enable_gqa:
            key, value = heads_of(query, key, value)
        return native(query, key, value, attn_mask, 0.0, is_causal, scale=scale)
    query, key, value = autocast(query, key, value)
    spec, state = spec_of(recipe) or (AUTO if backend == "auto" else ""), 0
    if spec in ("", AUTO) and not torch.compiler.is_compiling():
        # The operator chooses too, but calling it takes longer than a short call. What is chosen
        # here names its recipe and state, so that the operator does not count the layer again; a
        # recipe of the call's own is left to it altogether.
        dense = attn_mask is None and not is_causal
        choice = choose(query, key, "BHSD", spec, None, 1, dense)
        if choice.recipe == TORCH:
            return exact(query, key, value, attn_mask, None, scale, is_causal, False)[0]
        spec, state = choice.recipe, 0 if choice.state is None else choice.state.number
    out: torch.Tensor = torch.ops.vcattn.attention(
        query, key, value, attn_mask, scale=scale, causal=is_causal, recipe=spec, backend=backend,
        state=state, fallback=True,
    )[0]  # fmt: skip
    return out


def _refusal(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    gqa: bool,
) -> str:
    """Why this call means something that the operator does not do; "" if it does."""
    import torch

    supported = (torch.float32, torch.float16, torch.bfloat16)
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        return f"{q.dim()} axes (supported: 4)"
    if any(t.dtype not in supported for t in (q, k, v)):
        return "dtype other than float32, float16 or bfloat16"
    if not 1 <= q.shape[3] <= 256 or k.shape[3] != q.shape[3] or v.shape[3] != q.shape[3]:
        return "head dimension outside 1 to 256, or other dimensions in k or v"
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return "gradients are recorded"
    if causal and q.shape[2] != k.shape[2]:
        return "is_causal over Sq != Skv aligns top-left in PyTorch"
    if causal and mask is not None:
        return "is_causal and attn_mask together"
    if not gqa and k.shape[1] != q.shape[1]:
        return "head counts differ without enable_gqa"
    if k.shape[0] != q.shape[0] or v.shape[0] != q.shape[0]:
        return "batches are broadcast"
    if mask is not None and mask.dtype not in (*supported, torch.bool):
        return f"attn_mask of dtype {mask.dtype}"
    if q.device.type not in ("cpu", "cuda"):
        return f"device {q.device.type}"
    return ""
