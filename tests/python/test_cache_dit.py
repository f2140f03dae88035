"""cache-dit on one device: its registry, its setter and its bridge to diffusers."""

from __future__ import annotations

import pytest
import torch
import vcattn
from conftest import rel_l2

pytest.importorskip("diffusers")
cache_dit = pytest.importorskip("cache_dit")

from cache_dit.attention.backends import register as registry  # noqa: E402
from test_diffusers import forward, wan  # noqa: E402
from vcattn.integrations.cache_dit import register  # noqa: E402


def test_names_are_registered_once():
    names = register()
    assert register() == names and {"vcattn", "vcattn_vc4", "vcattn_vc8_fast"} <= set(names)
    supported = registry._AttnBackendRegistry.list_context_parallel_backends()
    assert set(names) <= set(supported)
    assert [member.value for member in registry._AttnBackend].count("vcattn") == 1


def test_a_model_set_by_cache_dit_runs_vcattn():
    register()
    model, inputs = wan()
    expected = forward(model, inputs, "native")
    ran = {}
    for name, recipe, bound in (("vcattn_exact", "exact", 1e-4), ("vcattn", "vc8", 0.05)):
        cache_dit.set_attn_backend(model, name)
        before = vcattn.backend_in_use().get(recipe, 0)
        with torch.no_grad():
            ran[name] = model(**inputs, return_dict=False)[0]
        assert vcattn.backend_in_use()[recipe] == before + 4  # self and cross, two blocks
        assert rel_l2(ran[name], expected) < bound
    assert not torch.equal(ran["vcattn"], expected)
    forward(model, inputs, "native")
