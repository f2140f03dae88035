"""vcattn as an attention backend of cache-dit (1.5 and later), registered at run time.

from vcattn.integrations.cache_dit import register
register()
cache_dit.set_attn_backend(pipe, "vcattn")
"""

from __future__ import annotations

from cache_dit.attention.backends import register as registry

from ._engine import backend_recipes, extend_enum, make_backend


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
        add(make_backend(recipe, registry._context_parallel_attention))
    return list(names)
