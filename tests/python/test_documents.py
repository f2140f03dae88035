"""What the documents point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = "bench|cmake|docs|examples|include|python|scripts|src|tests"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_paths_exist(document):
    text = document.read_text()
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
    paths = re.findall(rf"`((?:{FOLDERS})/[\w./-]+)", text)
    missing = [link for link in links if not (document.parent / link).exists()]
    missing += [path for path in paths if not (ROOT / path.rstrip(".")).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_python_tests_exist(document):
    text = document.read_text()
    files = {path.name: path.read_text() for path in (ROOT / "tests" / "python").glob("*.py")}
    assert {name for name in re.findall(r"\btest_\w+\.py\b", text) if name not in files} == set()
    functions = "\n".join(files.values())
    named = set(re.findall(r"\btest_\w+\b(?!\.py)", text))
    unknown = {name for name in named if f"def {name}(" not in functions}
    assert {name for name in unknown if not list((ROOT / "tests").rglob(f"{name}.*"))} == set()
