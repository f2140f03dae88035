"""vcattn as an attention backend of diffusers (0.36 and later), registered at run time.

    from vcattn.integrations.diffusers import register
    register()
    pipe.transformer.set_attention_backend("vcattn")

A ``vcattn.Schedule`` around the pipeline call chooses recipes and carries V-Smooth.
"""

from __future__ import annotations

from typing import Any

from diffusers.models import attention_dispatch as dispatch
from torch import Tensor, nn

from ..schedule import AUTO
from ._engine import Forward, attend, backend_recipes, backward_op, extend_enum, make_forward_op
from .quantized_ulysses import applies
from .quantized_ulysses import attend as quantized_attend

#: Like "vcattn", and Ulysses with equal shards sends 8 bits instead of 16.
QUANTIZED_ULYSSES = "vcattn_ulysses8"


def register() -> list[str]:
    """Adds "vcattn", one "vcattn_<recipe>" per recipe and "vcattn_ulysses8" to diffusers; again is
    harmless.

    "vcattn" follows the active ``Schedule``; without one it is vc8, and PyTorch's attention over
    fewer than ``vcattn.schedule.AUTO_MIN_KEYS`` keys. What vcattn cannot do PyTorch computes, with
    one warning per reason. Masks, GQA, causal masks and the LSE are supported; context parallelism
    (ring, Ulysses and both, any lengths) is too.

    Returns:
        The names to pass to ``set_attention_backend``.
    """
    names = backend_recipes()
    for name, recipe in names.items():
        _add(name, _make_backend(recipe))
    _add(QUANTIZED_ULYSSES, _make_backend(AUTO, quantized_ulysses=True))
    return [*names, QUANTIZED_ULYSSES]


def _add(name: str, backend: Forward) -> None:
    member = extend_enum(dispatch.AttentionBackendName, name)
    registry = dispatch._AttentionBackendRegistry
    registry.register(member, supports_context_parallel=True)(backend)


def _make_backend(recipe: str, quantized_ulysses: bool = False) -> Forward:
    forward_op = make_forward_op(recipe)

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
        _parallel_config: Any = None,
    ) -> Any:
        if _parallel_config is None:
            return attend(
                query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, return_lse,
                recipe,
            )  # fmt: skip
        parallel = _parallel_config.context_parallel_config
        plain = attn_mask is None and not (dropout_p or is_causal or enable_gqa or return_lse)
        ulysses_only = parallel.ulysses_degree > 1 and parallel.ring_degree == 1
        equal_shards = plain and ulysses_only and not parallel.ulysses_anything
        if quantized_ulysses and equal_shards and applies(query, key, parallel.ulysses_degree):
            group = parallel._ulysses_mesh.get_group()
            return quantized_attend(query, key, value, group, scale=scale)
        return dispatch._templated_context_parallel_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, return_lse,
            forward_op=forward_op, backward_op=backward_op, _parallel_config=_parallel_config,
        )  # fmt: skip

    return vcattn_attention


def use_key_lengths(model: nn.Module) -> int:
    """Replaces HunyuanVideo-1.5's attention processors by ones that pass the number of valid keys
    instead of building a (B, 1, S, S) mask in every block.

    Returns:
        How many were replaced; 0 means that the model has none.
    """
    from .hunyuan import replace_processors

    return replace_processors(model)
