"""What diffusers' and cache-dit's attention registries share: (B, S, H, d) tensors, SDPA's
meanings, context parallelism through a forward with the LSE."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from .._sdpa import sdpa
from ..errors import UnsupportedError
from ..recipe import recipes
from ..schedule import AUTO

#: Stands in for an LSE of -inf: the engines' merge computes differences of LSEs, and inf - inf is
#: not a number. exp(-1e4 - any real LSE) is still 0.
EMPTY_LSE = -1.0e4

Forward = Callable[..., Any]


@functools.cache
def backend_recipes() -> dict[str, str]:
    """Backend name -> recipe: "vcattn" follows the schedule, "vcattn_vc4" and so on are fixed."""
    fixed = {f"vcattn_{name.replace('-', '_')}": name for name in recipes()}
    return {"vcattn": AUTO, **fixed}


def extend_enum(enum: type[Enum], value: str) -> Any:
    """The member of a str-valued enumeration, added if it is not there."""
    known: dict[Any, Any] = enum._value2member_map_
    if value in known:
        return known[value]
    member: Any = str.__new__(enum, value)  # type: ignore[type-var]
    member._name_, member._value_ = value.upper(), value
    enum._member_map_[member._name_] = member
    enum._member_names_.append(member._name_)
    known[value] = member
    return member


def key_mask(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """Broadcastable to (B, H, Sq, Skv): (B, Skv) and (B, Sq, Skv) masks get their missing axes."""
    if mask is None:
        return None
    if mask.dim() == 2 and mask.shape == (query.shape[0], key.shape[1]):
        return mask[:, None, None, :]
    return mask[:, None] if mask.dim() == 3 else mask


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    return_lse: bool,
    recipe: str,
    shards: int = 1,
) -> Any:
    """One device's attention: out (B, S, H, d), or (out, LSE (B, S, H), float32, natural log)."""
    mask = key_mask(mask, query, key)
    if not return_lse:
        q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        out = sdpa(q, k, v, mask, dropout_p, is_causal, scale, enable_gqa, recipe=recipe)
        return out.transpose(1, 2)
    if dropout_p > 0.0:
        raise UnsupportedError(f"dropout_p: {dropout_p} (supported: 0)", "dropout_p")
    if is_causal and query.shape[1] != key.shape[1]:
        raise UnsupportedError("is_causal: Sq != Skv with an LSE", "is_causal")
    out, lse = torch.ops.vcattn.attention(
        query, key, value, mask, scale=scale, causal=is_causal, recipe=recipe, layout="BSHD",
        shards=shards, fallback=True, return_lse=True,
    )  # fmt: skip
    return out, lse.transpose(1, 2).clamp_min(EMPTY_LSE).contiguous()


def make_forward_op(recipe: str) -> Forward:
    """The local step of ring and Ulysses attention in both engines' form."""

    def vcattn_forward_op(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        return_lse: bool = False,
        _save_ctx: bool = True,
        _parallel_config: Any = None,
        _cp_config: Any = None,
    ) -> Any:
        config = getattr(_parallel_config, "context_parallel_config", _cp_config)
        return attend(
            query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, return_lse,
            recipe, shards=config.ring_degree or 1,
        )  # fmt: skip

    return vcattn_forward_op


def backward_op(ctx: Any, grad_out: Tensor, *arguments: Any) -> None:
    raise UnsupportedError("gradient: vcattn computes the forward pass only", "gradient")


def make_backend(recipe: str, context_parallel: Forward) -> Forward:
    """An attention backend in both engines' form: by the parameters' names they know what it takes.

    ``context_parallel`` is the engine's template, which calls the local step.
    """
    ops = {"forward_op": make_forward_op(recipe), "backward_op": backward_op}

    def vcattn_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        return_lse: bool = False,
        cp_gqa_strategy: str | None = None,
        _parallel_config: Any = None,
        _cp_config: Any = None,
    ) -> Any:
        call = (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, return_lse)
        if _parallel_config is not None:  # diffusers
            return context_parallel(*call, **ops, _parallel_config=_parallel_config)
        if _cp_config is not None:  # cache-dit
            return context_parallel(*call, cp_gqa_strategy, **ops, _cp_config=_cp_config)
        return attend(*call, recipe)

    return vcattn_attention
