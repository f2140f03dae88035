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

from ._engine import Forward, attend, backend_recipes, backward_op, extend_enum, make_forward_op


def register() -> list[str]:
    """Adds "vcattn" and one "vcattn_<recipe>" per recipe to diffusers; again is harmless.

    "vcattn" follows the active ``Schedule``; without one it is vc8, and PyTorch's attention over
    fewer than ``vcattn.schedule.AUTO_MIN_KEYS`` keys. What vcattn cannot do PyTorch computes, with
    one warning per reason. Masks, GQA, causal masks and the LSE are supported; context parallelism
    (ring, Ulysses and both, any lengths) is too.

    Returns:
        The names to pass to ``set_attention_backend``.
    """
    names = backend_recipes()
    for name, recipe in names.items():
        backend = extend_enum(dispatch.AttentionBackendName, name)
        add = dispatch._AttentionBackendRegistry.register(backend, supports_context_parallel=True)
        add(_make_backend(recipe))
    return list(names)


def _make_backend(recipe: str) -> Forward:
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
