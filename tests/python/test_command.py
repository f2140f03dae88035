"""``python -m vcattn`` hands its arguments to the tool and its exit status back."""

from __future__ import annotations

import os
import subprocess
import sys


def run(tool, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "vcattn", *arguments],
        env=dict(os.environ, VCATTN_BINARY=str(tool)),
        capture_output=True,
        text=True,
        check=False,
    )


def test_arguments_and_status_pass_through(tmp_path):
    tool = tmp_path / "vcattn"
    tool.write_text('#!/bin/sh\necho "got: $*"\nexit 3\n')
    tool.chmod(0o755)
    result = run(tool, "compare", "a b", "--json")
    assert result.stdout == "got: compare a b --json\n" and result.returncode == 3


def test_a_missing_tool_is_said(tmp_path):
    result = run(tmp_path / "absent")
    assert result.returncode == 1 and "no command line tool" in result.stderr
