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
from ._engine import Forward, backend_recipes, extend_enum, make_backend
from .quantized_ulysses import applies
from .quantized_ulysses import attend as quantized_attend

#: Like "vcattn", and Ulysses with equal shards sends 8 bits instead of 16.
QUANTIZED_ULYSSES = "vcattn_ulysses8"


def register() -> list[str]:
    """Adds "vcattn", one "vcattn_<recipe>" per recipe and "vcattn_ulysses8" to diffusers; again is
    harmless.

    "vcattn" follows the active ``Schedule``, without one it is vc8; calls that PyTorch is estimated
    to be faster at stay with PyTorch, unless the schedule has ``short="vcattn"``. The other names
    fix the recipe. What vcattn cannot do PyTorch computes, with one warning per reason. Masks, GQA,
    causal masks and the LSE are supported; context parallelism (ring, Ulysses and both, any
    lengths) is too.

    Returns:
        The names to pass to ``set_attention_backend``.
    """
    names = backend_recipes()
    for name, recipe in names.items():
        _add(name, recipe, dispatch._templated_context_parallel_attention)
    _add(QUANTIZED_ULYSSES, AUTO, _ulysses_in_8_bits)
    return [*names, QUANTIZED_ULYSSES]


def _add(name: str, recipe: str, context_parallel: Forward) -> None:
    member = extend_enum(dispatch.AttentionBackendName, name)
    add = dispatch._AttentionBackendRegistry.register(member, supports_context_parallel=True)
    add(make_backend(recipe, context_parallel))


def _ulysses_in_8_bits(
    query: Tensor, key: Tensor, value: Tensor, *options: Any, _parallel_config: Any, **ops: Any
) -> Any:
    """Calls without options and with equal shards in 8 bits, others the usual way."""
    mask, dropout_p, is_causal, scale, enable_gqa, return_lse = options
    config = _parallel_config.context_parallel_config
    plain = mask is None and not (dropout_p or is_causal or enable_gqa or return_lse)
    ulysses_only = config.ulysses_degree > 1 and config.ring_degree == 1
    equal_shards = plain and ulysses_only and not config.ulysses_anything
    if equal_shards and applies(query, key, config.ulysses_degree):
        return quantized_attend(query, key, value, config._ulysses_mesh.get_group(), scale=scale)
    return dispatch._templated_context_parallel_attention(
        query, key, value, *options, **ops, _parallel_config=_parallel_config
    )


def use_key_lengths(model: nn.Module) -> int:
    """Replaces HunyuanVideo-1.5's attention processors by ones that pass the number of valid keys
    instead of building a (B, 1, S, S) mask in every block.

    Returns:
        How many were replaced; 0 means that the model has none.
    """
    from .hunyuan import replace_processors

    return replace_processors(model)
