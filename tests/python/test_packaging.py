"""What an installation may and may not bring."""

from __future__ import annotations

import re
from pathlib import Path

import vcattn

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
