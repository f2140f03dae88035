"""vcattn.attention on NumPy arrays and DLPack producers, against float64."""

from __future__ import annotations

import itertools
import sys
import threading
import types

import ml_dtypes
import numpy as np
import pytest
import vcattn
from conftest import T8, reference, rel_l2
from vcattn import _arrays


@pytest.mark.parametrize("recipe", ["exact", "vc8", "vc8-fast", "sage2"])
def test_matches_float64(normal, recipe):
    q, k, v = normal(2, 4, 130, 128), normal(2, 2, 257, 128) + 0.5, normal(2, 2, 257, 128)
    out, lse = vcattn.attention(q, k, v, recipe=recipe, return_lse=True)
    expected, expected_lse = reference(q, k, v)
    bound = 1e-5 if recipe == "exact" else T8
    assert rel_l2(out, expected) <= bound
    assert np.abs(lse - expected_lse).max() <= (1e-4 if recipe == "exact" else 0.05)
    assert out.dtype == np.float32 and lse.dtype == np.float32
    assert lse.shape == (2, 4, 130)


def test_every_recipe_runs_and_is_described(normal):
    q, k, v = normal(1, 1, 200, 64), normal(1, 1, 200, 64), normal(1, 1, 200, 64)
    expected, _ = reference(q, k, v)
    known = vcattn.recipes()
    assert {"exact", "vc8", "vc4", "sage2", "sage3"} <= set(known)
    for name, summary in known.items():
        assert len(summary) > 10
        assert rel_l2(vcattn.attention(q, k, v, recipe=name), expected) < 0.35


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_output_has_the_dtype_of_q(normal, dtype):
    q = normal(1, 2, 70, 40).astype(dtype)
    k, v = normal(1, 2, 90, 40), normal(1, 2, 90, 40).astype(np.float16)
    out = vcattn.attention(q, k, v)
    assert out.dtype == dtype and out.shape == q.shape
    assert rel_l2(out, reference(q, k, v)[0]) <= T8


@pytest.mark.parametrize("dim", [8, 40, 64, 72, 80, 96, 104, 128, 160, 192, 256])
def test_head_dimensions_keep_their_own_scale(normal, dim):
    q, k, v = normal(1, 1, 65, dim), normal(1, 1, 65, dim), normal(1, 1, 65, dim)
    out = vcattn.attention(q, k, v)
    assert rel_l2(out, reference(q, k, v, scale=dim**-0.5)[0]) <= T8


def test_strided_views_equal_contiguous_ones(normal):
    fused = normal(1, 150, 3, 4, 96)  # (B, S, qkv, H, d)
    q, k, v = (fused[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    padded = normal(1, 4, 150, 160)[..., :96]
    dense = [np.ascontiguousarray(x) for x in (q, k, v, padded)]
    assert np.array_equal(vcattn.attention(q, k, v), vcattn.attention(*dense[:3]))
    assert np.array_equal(vcattn.attention(padded, k, v), vcattn.attention(dense[3], *dense[1:3]))
    backwards, flipped = q[:, :, ::-1], dense[0][:, :, ::-1].copy()
    assert np.array_equal(vcattn.attention(backwards, k, v), vcattn.attention(flipped, k, v))


def test_layout_bshd_is_the_transposed_call(normal):
    q, k, v = normal(2, 90, 3, 64), normal(2, 110, 3, 64), normal(2, 110, 3, 64)
    out, lse = vcattn.attention(q, k, v, layout="BSHD", return_lse=True)
    swapped = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
    expected, expected_lse = vcattn.attention(*swapped, return_lse=True)
    assert out.shape == q.shape and lse.shape == (2, 3, 90)
    assert np.array_equal(out, expected.transpose(0, 2, 1, 3))
    assert np.array_equal(lse, expected_lse)


def test_masks_are_applied(normal, rng):
    q, k, v = normal(2, 2, 60, 64), normal(2, 2, 75, 64), normal(2, 2, 75, 64)
    boolean = rng.random((2, 1, 60, 75)) < 0.7
    boolean[0, 0, 5] = False  # a row that sees nothing
    out, lse = vcattn.attention(q, k, v, mask=boolean, return_lse=True)
    expected, expected_lse = reference(q, k, v, mask=boolean)
    assert rel_l2(out, expected) <= T8
    assert np.all(out[0, :, 5] == 0) and np.all(lse[0, :, 5] == -np.inf)
    additive = normal(60, 75)
    assert (
        rel_l2(vcattn.attention(q, k, v, mask=additive), reference(q, k, v, mask=additive)[0]) <= T8
    )
    finite = np.isfinite(expected_lse)
    assert np.abs(lse - expected_lse)[finite].max() <= 0.05


def test_causal_is_bottom_right(normal):
    q, k, v = normal(1, 2, 40, 64), normal(1, 2, 100, 64), normal(1, 2, 100, 64)
    assert (
        rel_l2(vcattn.attention(q, k, v, causal=True), reference(q, k, v, causal=True)[0]) <= 0.09
    )


def test_key_lengths_hide_padding_entirely(normal):
    q, k, v = normal(3, 2, 50, 64), normal(3, 2, 80, 64), normal(3, 2, 80, 64)
    lengths = [80, 37, 0]
    expected, expected_lse = reference(q, k, v, key_lengths=lengths)
    out, lse = vcattn.attention(q, k, v, key_lengths=lengths, return_lse=True)
    assert rel_l2(out, expected) <= T8
    assert np.all(lse[2] == -np.inf) and np.abs(lse - expected_lse)[:2].max() <= 0.05
    for b, length in enumerate(lengths[:2]):
        alone = vcattn.attention(q[b : b + 1], k[b : b + 1, :, :length], v[b : b + 1, :, :length])
        assert np.array_equal(out[b : b + 1], alone)
    poisoned_k, poisoned_v = k.copy(), v.copy()
    poisoned_k[1, :, 37:], poisoned_v[1, :, 37:] = np.nan, np.inf
    assert np.array_equal(vcattn.attention(q, poisoned_k, poisoned_v, key_lengths=lengths), out)


def test_packed_segments_equal_separate_calls(normal):
    lengths = [33, 0, 128, 1, 90]
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    q, k, v = (normal(1, 2, offsets[-1], 64) for _ in range(3))
    out = vcattn.attention(q, k, v, cu_seqlens_q=offsets, cu_seqlens_k=list(map(int, offsets)))
    for begin, end in itertools.pairwise(offsets):
        part = [np.ascontiguousarray(x[:, :, begin:end]) for x in (q, k, v)]
        assert np.array_equal(out[:, :, begin:end], vcattn.attention(*part))


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rope_tables_are_applied(normal, layout):
    q, k, v = normal(1, 2, 60, 64), normal(1, 2, 60, 64), normal(1, 2, 60, 64)
    angles = (np.arange(60)[:, None] * 50.0 ** (-np.arange(32) / 32)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)

    def rotated(x):
        if layout == "half":
            a, b = x[..., :32], x[..., 32:]
            return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)
        a, b = x[..., ::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)

    out = vcattn.attention(
        q, k, v, recipe="exact", q_rope=(cos, sin), k_rope=(cos, sin), rope_layout=layout
    )
    assert rel_l2(out, reference(rotated(q), rotated(k), v)[0]) <= 1e-5


def test_out_is_written_in_place(normal):
    q, k, v = (normal(1, 2, 40, 64) for _ in range(3))
    out = np.full((1, 2, 40, 64), np.nan, np.float16)
    assert vcattn.attention(q, k, v, out=out) is out
    assert rel_l2(out, reference(q, k, v)[0]) <= T8


def test_empty_dimensions(normal):
    q, k, v = normal(1, 2, 5, 64), normal(1, 2, 0, 64), normal(1, 2, 0, 64)
    out, lse = vcattn.attention(q, k, v, return_lse=True)
    assert np.all(out == 0) and np.all(lse == -np.inf)
    assert vcattn.attention(q[:, :, :0], q, q).shape == (1, 2, 0, 64)


class Producer:
    """DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_producers(normal):
    q, k, v = normal(1, 2, 60, 64), normal(1, 2, 70, 64), normal(1, 2, 70, 64)
    out = vcattn.attention(*(Producer(x) for x in (q, k, v)))
    assert np.array_equal(out, vcattn.attention(q, k, v))


class Namespaced(Producer):
    """An array of a library with a namespace of its own, as JAX's are."""

    def __array_namespace__(self):
        return type("Namespace", (), {"asarray": staticmethod(Producer)})


def test_results_are_of_the_caller_s_kind(normal):
    q, k, v = (normal(1, 2, 30, 64) for _ in range(3))
    out, lse = vcattn.attention(*(Namespaced(x) for x in (q, k, v)), return_lse=True)
    expected = vcattn.attention(q, k, v, return_lse=True)
    assert isinstance(out, Producer) and isinstance(lse, Producer)
    assert np.array_equal(out.array, expected[0]) and np.array_equal(lse.array, expected[1])


class DeviceArray(Producer):
    """A CUDA array of a library with a namespace, for what needs no device."""

    def __init__(self, array, read_only):
        super().__init__(array)
        self.__cuda_array_interface__ = {"data": (0, read_only), "version": 3}

    def __array_namespace__(self):
        return np


def test_who_allocates_results_on_a_device(normal, monkeypatch):
    x = normal(2, 2)
    cupy = types.ModuleType("cupy")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for module in ("cupy", "cupy._core.core"):  # without __array_namespace__, as in CuPy 13
        ndarray = type("ndarray", (Producer,), {"__module__": module})
        assert _arrays._writable_namespace(ndarray(x)) is cupy
    assert _arrays._writable_namespace(DeviceArray(x, read_only=False)) is np
    for refused in (DeviceArray(x, read_only=True), Producer(x), Namespaced(x)):
        with pytest.raises(NotImplementedError, match="cannot be allocated"):
            _arrays._writable_namespace(refused)


def test_threads_agree_with_serial_calls(normal):
    inputs = [[normal(1, 2, 100, 64) for _ in range(3)] for _ in range(6)]
    expected = [vcattn.attention(*x) for x in inputs]
    found = [None] * 6

    def work(i):
        found[i] = vcattn.attention(*inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
