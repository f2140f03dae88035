"""The PyTorch operator: values, compile, autocast, gradients, SDPA's meanings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import vcattn
from conftest import T8, reference, rel_l2
from vcattn import _torch_op


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(3)
    return lambda *shape, dtype=torch.float32: torch.randn(shape, generator=generator).to(dtype)


@pytest.fixture(autouse=True)
def _warnings_fresh():
    _torch_op._warned.clear()


def test_equals_the_numpy_call(tensors):
    q, k, v = tensors(2, 4, 70, 64), tensors(2, 2, 90, 64), tensors(2, 2, 90, 64)
    out, lse = vcattn.attention(q, k, v, return_lse=True)
    expected, expected_lse = vcattn.attention(q.numpy(), k.numpy(), v.numpy(), return_lse=True)
    assert np.array_equal(out.numpy(), expected) and np.array_equal(lse.numpy(), expected_lse)


def test_bfloat16_and_mixed_dtypes(tensors):
    q, k, v = (
        tensors(1, 2, 70, 128, dtype=torch.bfloat16),
        tensors(1, 2, 90, 128),
        tensors(1, 2, 90, 128),
    )
    out = vcattn.attention(q, k, v.half())
    assert out.dtype == torch.bfloat16
    assert rel_l2(out.float(), reference(q.float(), k, v.half())[0]) <= T8


def test_output_keeps_the_memory_order_of_q(tensors):
    q = tensors(2, 70, 4, 64).transpose(1, 2)
    out = vcattn.attention(q, q, q)
    assert out.stride() == q.stride()
    assert torch.equal(out, vcattn.attention(*(q.contiguous(),) * 3))


def test_out_argument(tensors):
    q, k, v = (tensors(1, 2, 40, 64) for _ in range(3))
    out = torch.full((1, 2, 40, 64), torch.nan)
    result, lse = vcattn.attention(q, k, v, out=out, return_lse=True)
    assert result is out and torch.equal(out, vcattn.attention(q, k, v)) and lse.shape == (1, 2, 40)


def test_packed_tokens_heads_dim(tensors):
    lengths = [20, 33]
    q, k, v = (tensors(53, 2, 64) for _ in range(3))
    offsets = torch.tensor([0, 20, 53])
    out, lse = vcattn.attention(
        q, k, v, cu_seqlens_q=offsets, cu_seqlens_k=offsets, return_lse=True
    )
    assert out.shape == q.shape and lse.shape == (2, 53)
    parts = [[part[None] for part in x.split(lengths)] for x in (q, k, v)]
    each = [vcattn.attention(*part, layout="BSHD")[0] for part in zip(*parts, strict=True)]
    assert torch.equal(out, torch.cat(each))


def test_mask_key_lengths_and_rope_reach_the_library(tensors):
    q, k, v = tensors(2, 2, 40, 64), tensors(2, 2, 50, 64), tensors(2, 2, 50, 64)
    mask = tensors(40, 50) > -1
    out = vcattn.attention(q, k, v, mask=mask)
    assert rel_l2(out, reference(q, k, v, mask=mask)[0]) <= T8
    lengths = torch.tensor([50, 7])  # int64 is converted
    out = vcattn.attention(q, k, v, key_lengths=lengths)
    assert rel_l2(out, reference(q, k, v, key_lengths=lengths)[0]) <= T8
    angle = tensors(50, 32)
    rope = (angle.cos(), angle.sin())
    given = vcattn.attention(q, k, v, q_rope=rope, k_rope=rope).numpy()
    tables = tuple(table.numpy() for table in rope)
    expected = vcattn.attention(q.numpy(), k.numpy(), v.numpy(), q_rope=tables, k_rope=tables)
    assert np.array_equal(given, expected)


CALLS = {
    "plain": {},
    "lse": {"return_lse": True},
    "causal": {"causal": True, "recipe": "vc8-fast"},
    "bshd": {"layout": "BSHD", "return_lse": True, "scale": 0.3},
}


@pytest.mark.parametrize("name", CALLS)
def test_opcheck(tensors, name):
    q, k, v = (tensors(2, 8, 8, 32) for _ in range(3))
    torch.library.opcheck(torch.ops.vcattn.attention.default, (q, k, v), CALLS[name])


def test_opcheck_with_optional_tensors(tensors):
    q, k, v = (tensors(2, 2, 9, 32) for _ in range(3))
    mask, lengths = tensors(9, 9), torch.tensor([3, 9], dtype=torch.int32)
    angle = tensors(9, 8)
    rest = (mask, lengths, None, None, angle.cos(), angle.sin(), angle.cos(), angle.sin())
    torch.library.opcheck(torch.ops.vcattn.attention.default, (q, k, v, *rest))


def test_opcheck_of_transposed_views_and_gradients(tensors):
    q, k, v = (tensors(2, 9, 3, 32).transpose(1, 2).requires_grad_() for _ in range(3))
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.vcattn.attention.default, (q, k, v), test_utils=tests)


def test_compile_fullgraph_equals_eager(tensors):
    def block(x, mask):
        q, k, v = x.unflatten(-1, (3, 2, 32)).permute(2, 0, 3, 1, 4)
        out, lse = vcattn.attention(q, k, v, mask=mask, return_lse=True)
        return out.transpose(1, 2).flatten(2) + lse.sum(), vcattn.sdpa(q, k, v)

    x, mask = tensors(2, 40, 192), tensors(40, 40) > -1
    expected = block(x, mask)
    found = torch.compile(block, fullgraph=True, backend="aot_eager")(x, mask)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def traced(function, *tensors, fullgraph=True):
    """(result, what the graphs call outside of torch) of a compiled function; a warning, such as
    Dynamo gives for what it cannot trace, is an error."""
    calls = []

    def backend(module, example):
        calls.extend(str(n.target) for n in module.graph.nodes if "vcattn" in str(n.target))
        return module

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = torch.compile(function, fullgraph=fullgraph, backend=backend)(*tensors)
    return result, calls


CUT = vcattn.Recipe("vc8", hadamard=False)
ROPE = (torch.ones(40, 16), torch.zeros(40, 16))
COMPILED = {
    "plain": lambda q, k, v: vcattn.attention(q, k, v),
    "recipe": lambda q, k, v: vcattn.attention(q, k, v, recipe=CUT),
    "recipe made inside": lambda q, k, v: vcattn.attention(
        q, k, v, recipe=vcattn.Recipe("vc8", p_top=100)
    ),
    "key lengths": lambda q, k, v: vcattn.attention(q, k, v, key_lengths=[17]),
    "rope": lambda q, k, v: vcattn.attention(q, k, v, q_rope=ROPE, k_rope=ROPE),
    "out": lambda q, k, v: vcattn.attention(q, k, v, out=torch.zeros_like(q)),
    "lse and out": lambda q, k, v: vcattn.attention(
        q, k, v, out=torch.zeros_like(q), return_lse=True
    )[1],
    "packed": lambda q, k, v: vcattn.attention(
        *(x[0].transpose(0, 1) for x in (q, k, v)),
        cu_seqlens_q=[0, 9, 40], cu_seqlens_k=[0, 9, 40],
    ),
    "sdpa": lambda q, k, v: vcattn.sdpa(q, k, v, recipe=CUT),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_the_compiler_sees_the_operator_alone(tensors, name):
    q, k, v = (tensors(1, 2, 40, 32) for _ in range(3))
    expected = COMPILED[name](q, k, v)
    found, calls = traced(COMPILED[name], q, k, v)
    assert torch.equal(found, expected)
    assert calls == ["vcattn.attention"]


@pytest.mark.parametrize("recipe", ["vc8", "torch"])
def test_a_schedule_around_compiled_code(tensors, recipe):
    q, k, v = (tensors(1, 2, 200, 32) for _ in range(3))
    with vcattn.Schedule(steps=4, recipe=recipe):
        expected = vcattn.attention(q, k, v)
    with vcattn.Schedule(steps=4, recipe=recipe):
        found, calls = traced(COMPILED["plain"], q, k, v)
    assert torch.equal(found, expected) and calls == ["vcattn.attention"]


def test_what_sdpa_hands_back_compiles(tensors):
    q, k, v = (tensors(1, 2, n, 32) for n in (10, 40, 40))
    reason = "torch: is_causal over Sq != Skv aligns top-left in PyTorch"
    before = vcattn.backend_in_use().get(reason, 0)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    compiled = torch.compile(
        lambda q, k, v: vcattn.sdpa(q, k, v, is_causal=True), fullgraph=True, backend=counter
    )
    with pytest.warns(UserWarning, match="top-left"):
        found = [compiled(q, k, v) for _ in range(10)]
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert all(torch.equal(out, expected) for out in found)
    # Traced once, and counted then.
    assert counter.frame_count == 1 and vcattn.backend_in_use()[reason] == before + 1


@pytest.mark.parametrize("probe", ["can_use", "why_not", "explain"])
def test_probes_break_the_graph_and_are_not_traced(tensors, probe):
    def block(q, k, v):
        return q * 2 if getattr(vcattn, probe)(q, k, v) == answer else q * 3

    q, k, v = (tensors(1, 2, 40, 32) for _ in range(3))
    answer = getattr(vcattn, probe)(q, k, v)
    found, _ = traced(block, q, k, v, fullgraph=False)
    assert torch.equal(found, q * 2)


def test_dynamic_shapes_do_not_recompile(tensors):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda q, k, v: vcattn.attention(q * 2, k, v), fullgraph=True, dynamic=True, backend=counter
    )
    for tokens in (128, 256, 300, 77):
        q, k, v = (tensors(1, 2, tokens, 32) for _ in range(3))
        assert torch.equal(compiled(q, k, v), vcattn.attention(q * 2, k, v))
    assert counter.frame_count == 1


def test_autocast_casts_as_sdpa_does(tensors):
    q, k, v = (tensors(1, 2, 40, 64) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        out = vcattn.attention(q, k, v)
        assert out.dtype == F.scaled_dot_product_attention(q, k, v).dtype == torch.bfloat16
        assert vcattn.sdpa(q, k, v).dtype == torch.bfloat16
    low = [x.bfloat16() for x in (q, k, v)]
    assert torch.equal(out, vcattn.attention(*low))


def test_gradients_are_refused_not_silently_missing(tensors):
    q, k, v = (tensors(1, 2, 20, 32) for _ in range(3))
    q.requires_grad_()
    out = vcattn.attention(q, k, v)
    with pytest.raises(NotImplementedError, match="forward pass only"):
        out.sum().backward()
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert not vcattn.attention(q, k, v).requires_grad
    with pytest.raises(ValueError, match="out"):
        vcattn.attention(q, k, v, out=torch.empty(1, 2, 20, 32))


def test_sdpa_equals_attention_and_torch(tensors):
    q, k, v = tensors(2, 4, 60, 64), tensors(2, 2, 70, 64), tensors(2, 2, 70, 64)
    bias = tensors(1, 1, 60, 70)
    out = vcattn.sdpa(q, k, v, bias, scale=0.2, enable_gqa=True)
    wide = (x.repeat_interleave(2, 1) for x in (k, v))
    expected = F.scaled_dot_product_attention(q, *wide, bias, scale=0.2)
    assert rel_l2(out, expected) <= T8
    assert not torch.equal(out, expected)  # it did run here
    assert vcattn.sdpa(q, q, q, is_causal=True).shape == q.shape


@pytest.mark.parametrize(
    ("reason", "call"),
    [
        ("gradients", lambda t: (t(1, 2, 9, 32).requires_grad_(), t(1, 2, 9, 32), t(1, 2, 9, 32))),
        ("head dimension", lambda t: (t(1, 2, 9, 300),) * 3),
        ("head dimension", lambda t: (t(1, 2, 9, 32), t(1, 2, 9, 32), t(1, 2, 9, 16))),
        ("dtype", lambda t: (t(1, 2, 9, 32).double(),) * 3),
        ("axes", lambda t: (t(2, 9, 32),) * 3),
        ("batches", lambda t: (t(2, 2, 9, 32), t(1, 2, 9, 32), t(1, 2, 9, 32))),
    ],
)
def test_sdpa_hands_back_what_it_cannot_do_and_says_so_once(tensors, reason, call):
    q, k, v = call(tensors)
    before = sum(vcattn.backend_in_use().values())
    with pytest.warns(UserWarning, match=reason):
        out = vcattn.sdpa(q, k, v)
    assert torch.equal(out, F.scaled_dot_product_attention(q, k, v))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vcattn.sdpa(q, k, v)
    assert sum(vcattn.backend_in_use().values()) == before + 2
    assert any(reason in key for key in vcattn.backend_in_use())


def test_sdpa_refuses_dropout(tensors):
    q = tensors(1, 2, 9, 32)
    with pytest.raises(NotImplementedError, match=r"dropout_p: 0\.1"):
        vcattn.sdpa(q, q, q, dropout_p=0.1)


def test_sdpa_keeps_torch_s_causal_alignment(tensors):
    q, k, v = tensors(1, 2, 9, 32), tensors(1, 2, 20, 32), tensors(1, 2, 20, 32)
    with pytest.warns(UserWarning, match="top-left"):
        out = vcattn.sdpa(q, k, v, is_causal=True)
    assert torch.equal(out, F.scaled_dot_product_attention(q, k, v, is_causal=True))
    with pytest.raises(NotImplementedError, match="dropout_p"):
        vcattn.sdpa(q, k, v, None, 0.1)


def test_sdpa_falls_back_when_the_library_refuses(tensors):
    q, k, v = (tensors(1, 2, 9, 32) for _ in range(3))
    if vcattn.is_available("cuda"):
        pytest.skip("a CUDA backend is here")
    with pytest.warns(UserWarning, match="backend"):
        out = vcattn.sdpa(q, k, v, backend="cuda")
    assert torch.equal(out, F.scaled_dot_product_attention(q, k, v))


def test_profiler_shows_the_name(tensors):
    q = tensors(1, 2, 20, 32)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        vcattn.attention(q, q, q)
    assert "vcattn::attention" in {event.key for event in profile.key_averages()}


def test_global_matmul_flags_change_nothing(tensors):
    q, k, v = (tensors(1, 2, 40, 64) for _ in range(3))
    expected = vcattn.attention(q, k, v)
    previous = torch.get_float32_matmul_precision()
    half = torch.backends.cuda.matmul
    accumulation = getattr(half, "allow_fp16_accumulation", None)  # PyTorch 2.7 and later
    try:
        torch.set_float32_matmul_precision("medium")
        if accumulation is not None:
            half.allow_fp16_accumulation = True
        assert torch.equal(vcattn.attention(q, k, v), expected)
    finally:
        torch.set_float32_matmul_precision(previous)
        if accumulation is not None:
            half.allow_fp16_accumulation = accumulation


def test_meta_and_other_devices_are_refused():
    x = torch.empty(1, 1, 4, 8, device="meta")
    assert vcattn.attention(x, x, x).shape == x.shape  # shapes only
    assert "device meta" in vcattn.why_not(x, x, x)


def test_replacing_torch_s_function_falls_through(tensors, monkeypatch):
    """A program that swaps SDPA globally also meets image encoders, masks and odd shapes."""
    native = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", vcattn.sdpa)
    q = tensors(1, 2, 257, 80)
    mask = tensors(257, 257) > -1
    out = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    assert rel_l2(out, native(q, q, q, attn_mask=mask)) <= T8
    wide = tensors(1, 1, 9, 512)
    with pytest.warns(UserWarning, match="head dimension"):
        out = F.scaled_dot_product_attention(wide, wide, wide)
    assert torch.equal(out, native(wide, wide, wide))


def test_large_half_precision_values_stay_finite(tensors):
    q, k = tensors(1, 2, 100, 64), tensors(1, 2, 100, 64)
    v = (tensors(1, 2, 100, 64) * 2e4).clamp(-6e4, 6e4).half()
    out = vcattn.attention(q.half(), k.half(), v)
    assert out.isfinite().all() and rel_l2(out.float(), reference(q.half(), k.half(), v)[0]) <= T8


def test_lse_rows_are_in_order(tensors):
    q, k = tensors(1, 1, 128, 64) * torch.linspace(0.1, 3, 128)[:, None], tensors(1, 1, 300, 64)
    _, lse = vcattn.attention(q, k, k, return_lse=True)
    expected = reference(q, k, k)[1]
    assert np.abs(lse.numpy() - expected).max() <= 0.05 * np.abs(expected).max()
    assert np.corrcoef(lse.numpy().ravel(), expected.ravel())[0, 1] > 0.999


@pytest.mark.parametrize("given", [{}, {"mask": True}, {"key_lengths": [3, 20]}, {"causal": True}])
@pytest.mark.parametrize("layout", ["BHSD", "BSHD"])
def test_the_torch_recipe_is_exact(tensors, given, layout):
    q, k, v = tensors(2, 4, 20, 32), tensors(2, 2, 20, 32) + 0.5, tensors(2, 2, 20, 32)
    if "mask" in given:
        given = {"mask": tensors(20, 20) > -1}
    expected, expected_lse = reference(q, k, v, **given)
    if layout == "BSHD":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out, lse = vcattn.attention(q, k, v, recipe="torch", return_lse=True, layout=layout, **given)
    assert out.stride() == torch.empty_like(q).stride()
    out = out.transpose(1, 2) if layout == "BSHD" else out
    assert rel_l2(out, expected) < 1e-5
    assert np.abs(lse.numpy() - expected_lse).max() < 1e-4


def test_the_torch_recipe_refuses_what_it_cannot_do(tensors):
    q, k = tensors(1, 1, 8, 32), tensors(1, 1, 20, 32)
    with pytest.raises(NotImplementedError, match="bottom-right"):
        vcattn.attention(q, k, k, recipe="torch", causal=True)
    rope = (tensors(20, 4), tensors(20, 4))
    with pytest.raises(NotImplementedError, match="rope"):
        vcattn.attention(q, k, k, recipe="torch", k_rope=rope)
    out, lse = vcattn.attention(q, k[:, :, :0], k[:, :, :0], recipe="torch", return_lse=True)
    assert torch.all(out == 0) and torch.all(lse == -torch.inf)
