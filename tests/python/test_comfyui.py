"""The ComfyUI override against ComfyUI's attention interface: shapes, masks, hand-backs, sigmas."""

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from conftest import T8, rel_l2
from vcattn import _torch_op
from vcattn.integrations.comfyui import AttentionOverride, Settings, patch_model


def native(q, k, v, heads, mask=None, attn_precision=None, skip_reshape=False,
           skip_output_reshape=False, **kwargs):  # fmt: skip
    """What an attention function of ComfyUI does, by its documented shapes."""
    if not skip_reshape:
        dim = q.shape[-1] // heads
        q, k, v = (x.unflatten(2, (-1, dim)).transpose(1, 2) for x in (q, k, v))
    if mask is not None and mask.dim() == 3:
        mask = mask[:, None]
    if kwargs.get("enable_gqa"):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    out = F.scaled_dot_product_attention(q, k, v, mask, scale=kwargs.get("scale"))
    return out if skip_output_reshape else out.transpose(1, 2).flatten(2)


class Recorder:
    """An attention function that notes its calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return native(*args, **kwargs)


def options(step=0, steps=8, block=0, uuids=("a",)):
    sigmas = torch.linspace(1, 0, steps + 1)
    return {"sample_sigmas": sigmas, "sigmas": sigmas[step : step + 1], "block_index": block,
            "uuids": list(uuids)}  # fmt: skip


@pytest.fixture
def qkv():
    torch.manual_seed(4)
    return lambda tokens=200, heads=2, batch=1: [
        torch.randn(batch, heads, tokens, 64) for _ in range(3)
    ]


@pytest.mark.parametrize("skip_reshape", [False, True])
@pytest.mark.parametrize("skip_output_reshape", [False, True])
@pytest.mark.parametrize("masked", [None, "2d", "3d", "4d"])
def test_shapes_and_masks(qkv, skip_reshape, skip_output_reshape, masked):
    override, func = AttentionOverride(Settings()), Recorder()
    q, k, v = qkv(batch=2)
    if not skip_reshape:
        q, k, v = (x.transpose(1, 2).flatten(2) for x in (q, k, v))
    mask = torch.rand(2, 1, 200, 200) < 0.8
    mask = {None: None, "2d": mask[0, 0], "3d": mask[:, 0], "4d": mask}[masked]
    if masked == "3d":
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    given = {"mask": mask, "skip_reshape": skip_reshape, "skip_output_reshape": skip_output_reshape}
    out = override(func, q, k, v, 2, transformer_options=options(), **given)
    expected = native(q, k, v, 2, **given)
    assert out.shape == expected.shape and func.calls == []
    assert 0 < rel_l2(out, expected) <= T8


def test_gqa_scale_and_cross_attention(qkv):
    override, func = AttentionOverride(Settings()), Recorder()
    q, (k, v) = torch.randn(1, 50, 4 * 64), (torch.randn(1, 70, 2 * 64) for _ in range(2))
    out = override(func, q, k, v, 4, scale=0.3, enable_gqa=True, transformer_options=options())
    assert rel_l2(out, native(q, k, v, 4, scale=0.3, enable_gqa=True)) <= T8
    assert func.calls == []


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        (Settings(exact_blocks="1, 3-5"), {"transformer_options": options(block=4)}),
        (Settings(exact_steps=2), {"transformer_options": options(step=1)}),
        (Settings(exact_steps=20), {"transformer_options": options(step=7)}),
        (Settings(), {"low_precision_attention": False}),
        (Settings(), {"attn_precision": torch.float32}),
    ],
)
def test_calls_are_handed_back_unchanged(qkv, settings, given):
    func, previous_calls = Recorder(), []

    def previous(inner, *args, **kwargs):
        previous_calls.append(kwargs)
        return inner(*args, **kwargs)

    q, k, v = qkv()
    for override in (AttentionOverride(settings), AttentionOverride(settings, previous)):
        out = override(func, q, k, v, 2, skip_reshape=True, **given)
        assert torch.equal(out, native(q, k, v, 2, skip_reshape=True))
    (args, kwargs) = func.calls[0]
    assert args[3] == 2 and kwargs["skip_reshape"] and len(previous_calls) == 1
    assert all(kwargs[name] is value for name, value in given.items())


def test_unsupported_calls_fall_back_with_one_warning(qkv):
    _torch_op._warned.clear()
    override, func = AttentionOverride(Settings()), Recorder()
    q = torch.randn(1, 20, 2 * 300)
    with pytest.warns(UserWarning, match="head dimension 300"):
        out = override(func, q, q, q, 2, transformer_options=options())
    assert torch.equal(out, native(q, q, q, 2))


def test_schedule_follows_sigmas_blocks_and_branches(qkv):
    override, func = AttentionOverride(Settings(window=0.5, refresh=2)), Recorder()
    q, k, v = qkv()
    steps = []
    for step in range(8):
        for block in range(2):
            for branch in ("cond", "uncond"):
                call = options(step, block=block, uuids=(branch,))
                override(func, q, k, v, 2, skip_reshape=True, transformer_options=call)
        steps.append(override._schedule.current_step)
    assert len(override._schedule.states) == 4  # two blocks, two branches
    assert steps == list(range(8))
    assert (override._schedule.window, override._schedule.refresh) == (0.5, 2)
    # A new run over the same sigmas starts from the first step.
    override(func, q, k, v, 2, skip_reshape=True, transformer_options=options(0))
    assert override._schedule.current_step == 0
    # Evaluations between two sigmas belong to the step that they lie in.
    between = options(3)
    between["sigmas"] = between["sigmas"] - 0.01
    override(func, q, k, v, 2, skip_reshape=True, transformer_options=between)
    assert override._schedule.current_step == 3
    # Other sigmas, another schedule.
    override(func, q, k, v, 2, skip_reshape=True, transformer_options=options(1, steps=20))
    assert override._schedule.steps == 20


class ModelPatcher:
    """ComfyUI's, as far as a patch sees it."""

    def __init__(self):
        self.model_options = {"transformer_options": {"patches": {}}}

    def clone(self):
        twin = ModelPatcher()
        twin.model_options = copy.copy(self.model_options)
        return twin


def test_patching_leaves_the_original_alone_and_chains():
    original = ModelPatcher()
    first = patch_model(original, Settings())
    second = patch_model(first, Settings(recipe="vc4"))
    key = "optimized_attention_override"
    assert key not in original.model_options["transformer_options"]
    chained = second.model_options["transformer_options"][key]
    assert chained.previous is first.model_options["transformer_options"][key]
    assert second.model_options["transformer_options"]["patches"] == {}


def test_the_node_has_what_comfyui_reads(monkeypatch):
    folder = Path(__file__).parents[2] / "python"
    monkeypatch.syspath_prepend(str(folder))
    module = __import__("comfyui_vcattn")
    node = module.NODE_CLASS_MAPPINGS["VcattnAttention"]
    inputs = node.INPUT_TYPES()["required"]
    assert "vc8" in inputs["recipe"][0] and inputs["model"] == ("MODEL",)
    defaults = {name: spec[1]["default"] for name, spec in inputs.items() if name != "model"}
    (patched,) = getattr(node(), node.FUNCTION)(ModelPatcher(), **defaults)
    override = patched.model_options["transformer_options"]["optimized_attention_override"]
    assert override.settings == Settings()
    assert set(module.NODE_DISPLAY_NAME_MAPPINGS) == set(module.NODE_CLASS_MAPPINGS)
    assert "comfy" not in sys.modules


def test_compiled_models_break_at_the_override_and_trace_nothing_of_it(qkv):
    override, compiled_steps = AttentionOverride(Settings()), []

    def block(q, k, v, given):
        return override(native, q * 2, k, v, 2, skip_reshape=True, transformer_options=given) + 1

    def backend(module, example):
        compiled_steps.append(len(module.graph.nodes))
        return module

    q, k, v = qkv()
    expected = [block(q, k, v, options(step)) for step in range(4)]
    torch._dynamo.reset()
    compiled = torch.compile(block, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [compiled(q, k, v, options(step)) for step in range(4)]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert len(compiled_steps) == 2  # before and after the attention, once for all steps
