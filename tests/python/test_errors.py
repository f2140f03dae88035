"""Refusals are typed, name the argument and what is supported; probes never raise."""

from __future__ import annotations

import ctypes
import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
import vcattn
from vcattn import _library


@pytest.fixture
def qkv(normal):
    return [normal(2, 4, 20, 64) for _ in range(3)]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda q, k, v: (q, k[:, :3], v[:, :3]), "k"),
        (lambda q, k, v: (q, k[..., :32], v), "k"),
        (lambda q, k, v: (q, k, v[..., :32]), "v"),
        (lambda q, k, v: (q, k[:, :, :19], v), "v"),
        (lambda q, k, v: (q, k[:1], v[:1]), "k"),
        (lambda q, k, v: (q[0], k, v), "q"),
        (lambda q, k, v: (q.astype(np.float64), k, v), "q"),
        (lambda q, k, v: (q, k, v.astype(np.int32)), "v"),
        (lambda q, k, v: (q, k, list(v)), "v"),
        (lambda q, k, v: (np.zeros((1, 1, 4, 257), np.float32),) * 3, "q"),
        (lambda q, k, v: (q[..., :0], k[..., :0], v[..., :0]), "q"),
    ],
)
def test_wrong_tensors(qkv, change, where):
    with pytest.raises(ValueError) as caught:
        vcattn.attention(*change(*qkv))
    assert isinstance(caught.value, vcattn.Error) and caught.value.where == where
    assert not vcattn.can_use(*change(*qkv))
    assert vcattn.why_not(*change(*qkv)) == str(caught.value)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"recipe": "vc9"}, "recipe"),
        ({"recipe": "vc8:hadamard=maybe"}, "hadamard"),
        ({"recipe": "vc8:no_such_field=1"}, "recipe field"),
        ({"layout": "BDHS"}, "layout"),
        ({"backend": "tpu"}, "backend"),
        ({"scale": float("nan")}, "scale"),
        ({"key_lengths": [21, 3]}, "key_lengths"),
        ({"key_lengths": [3]}, "key_lengths"),
        ({"key_lengths": [1.5, 2]}, "key_lengths"),
        ({"mask": np.ones((7, 20), bool)}, "mask"),
        ({"mask": np.ones((20, 20), np.int32)}, "mask"),
        ({"cu_seqlens_q": [0, 20]}, "k_segments"),
        ({"rope_layout": "x", "q_rope": (np.ones((20, 8), np.float32),) * 2}, "rope_layout"),
        ({"q_rope": (np.ones((19, 8), np.float32),) * 2}, "q_rope"),
        ({"q_rope": (np.ones((20, 33), np.float32),) * 2}, "q_rope"),
    ],
)
def test_wrong_options(qkv, options, where):
    with pytest.raises(vcattn.InvalidArgumentError) as caught:
        vcattn.attention(*qkv, **options)
    assert caught.value.where == where


def test_unknown_keywords_are_refused(qkv):
    with pytest.raises(TypeError):
        vcattn.attention(*qkv, is_causal=True)
    with pytest.raises(TypeError):
        vcattn.attention(*qkv, "vc8")


def test_sdpa_has_the_signature_of_torch():
    names = list(inspect.signature(vcattn.sdpa).parameters)[:8]
    assert names == ["query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale",
                     "enable_gqa"]  # fmt: skip


def test_unsupported_backend_is_typed(qkv):
    if vcattn.is_available("cuda"):
        pytest.skip("a CUDA backend is here")
    with pytest.raises(NotImplementedError) as caught:
        vcattn.attention(*qkv, backend="cuda")
    assert isinstance(caught.value, vcattn.UnsupportedError)


def test_message_lists_what_is_supported(qkv):
    with pytest.raises(ValueError, match="vc8") as caught:
        vcattn.attention(*qkv, recipe="best")
    assert "sage2" in str(caught.value)


def test_recipe_fields_round_trip():
    recipe = vcattn.Recipe("vc8", hadamard=False, p_top=100)
    assert recipe.fields["hadamard"] == "off" and recipe.fields["p_top"] == "100"
    assert vcattn.Recipe("vc8").fields["hadamard"] == "on"
    assert str(recipe) == "vc8:hadamard=off,p_top=100"


def test_explain_names_kernel_and_stages(qkv):
    text = vcattn.explain(*qkv, recipe="vc4", causal=True)
    assert text.startswith("Kernel cpu/")
    assert "NVFP4" in text and "Causal" in text
    with pytest.raises(vcattn.InvalidArgumentError):
        vcattn.explain(*qkv, recipe="vc9")


def test_info_tells_what_this_build_is():
    info = vcattn.info()
    assert info["error"] is None and info["abi"] == _library.ABI_VERSION
    assert info["version"] == info["library_version"] == vcattn.__version__
    assert any(backend["name"] == "cpu" for backend in info["backends"])
    assert vcattn.is_available("cpu")


PROBES = """
import vcattn
info = vcattn.info()
assert info["error"] and {what!r} in info["error"], info
assert vcattn.supported_archs() == [] and not vcattn.is_available("cuda")
assert not vcattn.is_available("cpu") and vcattn.backend_in_use() == {{}}
try:
    vcattn.Recipe("vc8")
except ImportError as error:
    assert isinstance(error, vcattn.LibraryLoadError) and {what!r} in str(error)
else:
    raise AssertionError
"""


def run_with_library(path, script):
    environment = dict(os.environ, VCATTN_LIBRARY=str(path))
    result = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_probes_do_not_raise_without_a_library(tmp_path):
    run_with_library(tmp_path / "absent.so", PROBES.format(what="absent.so"))


def test_another_abi_is_refused_with_both_versions(tmp_path):
    source = tmp_path / "other.c"
    names = [name for name in _library._PROTOTYPES if name != "vcattn_abi_version"]
    source.write_text(
        "int vcattn_abi_version(void) { return 7; }\n"
        + "".join(f"unsigned long {name}(void) {{ return 4096; }}\n" for name in names)
    )
    library = tmp_path / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    run_with_library(library, PROBES.format(what="ABI version 7"))


def test_structures_have_the_library_s_size():
    assert _library.library().vcattn_arguments_size() == ctypes.sizeof(_library.Arguments)


def test_works_without_torch(tmp_path):
    script = """
import sys
sys.modules["torch"] = None  # importing it raises
import numpy as np, vcattn
x = np.ones((1, 1, 8, 16), np.float32)
assert np.allclose(vcattn.attention(x, x, x), 1)
"""
    run_with_library(_library.library_path(), script)


def test_import_does_not_import_torch():
    script = "import sys, vcattn; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    run_with_library(_library.library_path(), script)
