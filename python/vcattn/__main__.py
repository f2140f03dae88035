"""``python -m vcattn``: the command line tool that the wheel holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def binary() -> Path:
    """``$VCATTN_BINARY`` if set, else the tool inside the package."""
    override = os.environ.get("VCATTN_BINARY")
    return Path(override) if override else Path(__file__).parent / "bin" / "vcattn"


def main() -> int:
    tool = binary()
    if not tool.exists():
        print(
            f"vcattn: there is no command line tool at {tool} (this installation was built "
            "without it; VCATTN_BINARY names another)",
            file=sys.stderr,
        )
        return 1
    return subprocess.call([str(tool), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
