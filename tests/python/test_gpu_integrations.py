"""Schedules, short calls, other libraries' arrays and the frameworks' models on a CUDA device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import vcattn
from conftest import T8, reference, rel_l2
from test_gpu import attention, capture, make_qkv, pytestmark, usable_recipe  # noqa: F401
from vcattn import _torch_op

native = torch.nn.functional.scaled_dot_product_attention

SHORT, LONG = "torch: it is faster there", 16384


def used(name):
    return vcattn.backend_in_use().get(name, 0)


def test_short_calls_go_to_torch_unless_a_recipe_is_named():
    short, long = make_qkv(queries=512), make_qkv(heads=24, queries=LONG)
    _torch_op._warned.clear()
    before, ran = used(SHORT), used("vc8")
    with pytest.warns(UserWarning, match=r"faster there \(estimated .* ms against .* ms"):
        assert torch.equal(vcattn.sdpa(*short), native(*short))
    assert (used(SHORT), used("vc8")) == (before + 1, ran)
    assert "hands such calls to PyTorch" in vcattn.explain(*short)
    assert not torch.equal(vcattn.sdpa(*short, recipe="vc8"), native(*short))
    assert not torch.equal(vcattn.sdpa(*short, backend="cuda"), native(*short))
    assert torch.equal(attention(*short), vcattn.sdpa(*short, recipe=usable_recipe()))
    with vcattn.Schedule(steps=4):
        assert torch.equal(vcattn.sdpa(*short), native(*short))
        assert torch.equal(vcattn.attention(*short), attention(*short))
        vcattn.sdpa(*long)
    with vcattn.Schedule(steps=4, short="vcattn"):
        assert not torch.equal(vcattn.sdpa(*short), native(*short))
    assert used(SHORT) == before + 2
    assert not torch.equal(vcattn.sdpa(*long), native(*long))
    assert used(SHORT) == before + 2 and "PyTorch" not in vcattn.explain(*long)


def test_short_calls_compile_and_are_captured():
    q, k, v = make_qkv(queries=512)
    compiled = torch.compile(lambda q, k, v: vcattn.sdpa(q * 2, k, v) + 1, fullgraph=True)
    before = used(SHORT)
    assert torch.equal(compiled(q, k, v), native(q * 2, k, v) + 1)
    graph, out = capture(lambda: vcattn.sdpa(q, k, v))
    q.copy_(q.roll(1, 2))
    graph.replay()
    assert torch.equal(out, native(q, k, v)) and used(SHORT) > before + 1


def test_the_comfyui_override_leaves_short_calls_to_the_model():
    from test_comfyui import Recorder, options
    from vcattn.integrations.comfyui import AttentionOverride, Settings

    given = {"skip_reshape": True, "transformer_options": options()}
    for queries, short, left in ((512, "torch", 1), (512, "vcattn", 0), (LONG, "torch", 0)):
        func = Recorder()
        AttentionOverride(Settings(short=short))(
            func, *make_qkv(heads=24, queries=queries), 24, **given
        )
        assert len(func.calls) == left, (queries, short)


def test_two_threads_with_two_schedules():
    """Each thread its recipe, its states and its stream; as one after the other."""
    inputs = {
        "vc8": make_qkv(queries=900),
        "vc8-fast": [x.roll(1, 2) for x in make_qkv(queries=700)],
    }

    def clip(recipe):
        with torch.cuda.stream(torch.cuda.Stream()), vcattn.Schedule(5, recipe=recipe) as plan:
            outs = [vcattn.attention(*inputs[recipe]) for _ in plan.track(range(5))]
            torch.cuda.current_stream().synchronize()
        return outs

    torch.cuda.synchronize()
    expected = {recipe: clip(recipe) for recipe in inputs}
    with ThreadPoolExecutor(len(inputs)) as pool:
        found = dict(zip(inputs, pool.map(clip, inputs), strict=True))
    for name, outs in expected.items():
        assert all(torch.equal(a, b) for a, b in zip(found[name], outs, strict=True)), name


def test_cupy():
    cupy = pytest.importorskip("cupy")
    q, k, v = (cupy.from_dlpack(x.half().contiguous()) for x in make_qkv(queries=300))
    out = attention(q, k, v)
    assert isinstance(out, cupy.ndarray) and out.dtype == cupy.float16
    expected, _ = reference(*(cupy.asnumpy(x).astype(np.float32) for x in (q, k, v)))
    assert rel_l2(cupy.asnumpy(out), expected) <= T8


class DeviceArray:
    """A CUDA array of another library, as far as DLPack and the array API show it."""

    def __init__(self, tensor):
        self.tensor, self.shape, self.dtype = tensor, tuple(tensor.shape), tensor.dtype

    def __dlpack__(self, stream=None):
        return self.tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    @property
    def __cuda_array_interface__(self):
        return self.tensor.half().__cuda_array_interface__

    def __array_namespace__(self):
        return DeviceNamespace


class DeviceNamespace:
    float32 = torch.float32

    @staticmethod
    def empty(shape, dtype):
        return DeviceArray(torch.empty(shape, dtype=dtype, device="cuda"))


def test_arrays_of_other_libraries():
    tensors = make_qkv(queries=300)
    out, lse = attention(*(DeviceArray(x) for x in tensors), return_lse=True)
    torch.cuda.synchronize()
    expected, expected_lse = attention(*tensors, return_lse=True)
    assert isinstance(out, DeviceArray) and out.dtype == torch.bfloat16
    assert torch.equal(out.tensor, expected) and torch.equal(lse.tensor, expected_lse)


@pytest.mark.parametrize("name", ["wan", "hunyuan-1.5", "minimax-h3"])
def test_diffusers_models(name):
    pytest.importorskip("diffusers")
    from test_diffusers import MODELS, forward
    from vcattn.integrations.diffusers import register, use_key_lengths

    register()
    model, inputs = MODELS[name]()
    model, inputs = model.cuda(), {key: value.cuda() for key, value in inputs.items()}
    expected = forward(model, inputs, "native")
    use_key_lengths(model)
    before = vcattn.backend_in_use()
    with vcattn.Schedule(steps=1, recipe=usable_recipe(), short="vcattn"):
        found = forward(model, inputs, "vcattn")
    forward(model, inputs, "native")
    assert rel_l2(found.float().cpu(), expected.float().cpu()) < 0.05
    assert vcattn.backend_in_use()[usable_recipe()] > before.get(usable_recipe(), 0)
