"""vcattn as an attention backend of cache-dit (1.5 and later), registered at run time.

from vcattn.integrations.cache_dit import register
register()
cache_dit.set_attn_backend(pipe, "vcattn")
"""

from __future__ import annotations

from typing import Any

from cache_dit.attention.backends import register as registry
from torch import Tensor

from ._engine import Forward, attend, backend_recipes, backward_op, extend_enum, make_forward_op


def register() -> list[str]:
    """Adds "vcattn" and one "vcattn_<recipe>" per recipe to cache-dit, with Ulysses, ring and
    both; cache-dit's bridge brings them to diffusers. Again is harmless.

    Returns:
        The names.
    """
    names = backend_recipes()
    for name, recipe in names.items():
        backend = extend_enum(registry._AttnBackend, name)
        add = registry._AttnBackendRegistry.register(backend, supports_context_parallel=True)
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
        cp_gqa_strategy: str | None = None,
        _cp_config: Any = None,
    ) -> Any:
        if _cp_config is None:
            return attend(
                query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, return_lse,
                recipe,
            )  # fmt: skip
        return registry._context_parallel_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, return_lse,
            cp_gqa_strategy, forward_op=forward_op, backward_op=backward_op, _cp_config=_cp_config,
        )  # fmt: skip

    return vcattn_attention
