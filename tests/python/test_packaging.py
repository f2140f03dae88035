"""What an installation may and may not bring."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import vcattn
from vcattn import _library

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()


def test_installing_brings_no_torch():
    required = re.search(r"^requires = \[(.*)\]$", PROJECT, re.M)
    assert required and "torch" not in required[1] and "numpy" not in required[1]
    assert re.search(r"^dependencies = \[\]$", PROJECT, re.M)


def test_versions_agree():
    (version,) = re.findall(r'^version = "(.+)"$', PROJECT, re.M)
    assert version == vcattn.__version__
    assert f"project(vcattn VERSION {version} " in (ROOT / "CMakeLists.txt").read_text()


def test_one_wheel_for_every_python():
    assert 'wheel.py-api = "py3"' in PROJECT and 'requires-python = ">=3.10"' in PROJECT


def toolkit(folder: Path, release: str) -> Path:
    """A folder with an nvcc that only tells its release."""
    (folder / "bin").mkdir(parents=True)
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)
    return nvcc


@pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")
@pytest.mark.parametrize(
    ("home", "on_path", "cuda"), [("13.0", "12.4", "ON"), ("12.4", "13.0", "OFF")]
)
def test_the_toolkit_of_cuda_home_decides(tmp_path, home, on_path, cuda):
    chosen = toolkit(tmp_path / "home", home)
    other = toolkit(tmp_path / "other", on_path)
    script = tmp_path / "build.cmake"
    module = ROOT / "cmake" / "PythonWheel.cmake"
    script.write_text(
        f"set(CMAKE_CURRENT_SOURCE_DIR {ROOT})\nset(VCATTN_CUDA ON)\ninclude({module})\n"
        'message(STATUS "CUDA ${VCATTN_CUDA} by ${CMAKE_CUDA_COMPILER}")\n'
    )
    environment = {
        **os.environ, "CUDA_HOME": str(tmp_path / "home"),
        "PATH": f"{other.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    found = subprocess.run(
        ["cmake", "-P", script], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert f"CUDA {cuda} by" in found
    if cuda == "ON":
        assert f"by {chosen}" in found
    else:  # the message says which one was looked at, and its release
        assert f"nvcc found: '{chosen}' release 12" in found and "need release 13" in found


@pytest.mark.skipif(
    not (shutil.which("cuobjdump") and vcattn.supported_archs()),
    reason="no cuobjdump, or a libvcattn without CUDA kernels",
)
def test_the_binary_holds_the_architectures_it_names():
    listing = subprocess.run(
        ["cuobjdump", "--list-elf", _library.library_path()],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert set(re.findall(r"\.(sm_\d+)[af]?\.cubin", listing)) == set(vcattn.supported_archs())
