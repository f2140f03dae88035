#!/usr/bin/env python3
"""Lets a CUDA build of PyTorch from PyPI run on a CPU without its 3 GB of CUDA libraries.

PyTorch's libraries name cuBLAS, cuDNN and so on as needed, so they do not load without them,
although nothing calls them on a machine without a GPU. For every such library that is missing this
writes one of the same name into torch/lib whose functions abort. For tests only.

Usage: torch_cpu_stubs.py SITE_PACKAGES
"""

import pathlib
import re
import subprocess
import sys
import tempfile


def tool(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_libraries(library):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", tool("readelf", "-d", library))


def versions_needed(library):
    """Version name -> the library it is expected from."""
    found, current = {}, None
    for line in tool("readelf", "-V", "-W", library).splitlines():
        if match := re.search(r"File: (\S+)", line):
            current = match[1]
        elif match := re.search(r"Name: (\S+)\s+Flags: .*Version: \d+", line):
            found[match[1]] = current
    return found


def undefined_symbols(library):
    """(symbol, version or "") pairs."""
    names = [line.split()[-1] for line in tool("nm", "-D", "-u", library).splitlines()]
    return {tuple((name.replace("@@", "@") + "@").split("@")[:2]) for name in names}


def defined_symbols(library):
    lines = tool("nm", "-D", "--defined-only", library).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def write_stub(path, versions):
    """`versions` maps a version name ("" for none) to its symbols."""
    symbols = sorted(set().union(*versions.values()))
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "stub.map")
        source.write_text("".join(f"void {s}(void) {{ __builtin_trap(); }}\n" for s in symbols))
        nodes = [
            f"{name} {{ global: {''.join(s + '; ' for s in sorted(names))} }};"
            for name, names in versions.items()
            if name
        ]
        script.write_text("\n".join(nodes))
        command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", str(source), "-o", str(path)]
        command += [f"-Wl,-soname,{path.name}"]
        if nodes:
            command += [f"-Wl,--version-script={script}"]
        subprocess.run(command, check=True)


def main():
    site = pathlib.Path(sys.argv[1])
    torch_lib = site / "torch" / "lib"
    libraries = sorted(torch_lib.glob("*.so*"))
    present = {path.name for path in [*libraries, *site.glob("nvidia/**/*.so*")]}
    is_cuda = re.compile(r"lib(cu|nv|nccl)\w*\.so")
    missing = {
        name
        for library in libraries
        for name in needed_libraries(library)
        if is_cuda.match(name) and name not in present
    }
    missing.discard("libcuda.so.1")  # loaded on demand only
    versions = {name: {} for name in missing}
    defined = set().union(
        *(defined_symbols(library) for library in [*libraries, *site.glob("nvidia/**/*.so*")])
    )
    unversioned = set()
    for library in libraries:
        owners = versions_needed(library)
        for symbol, version in undefined_symbols(library):
            owner = owners.get(version)
            if owner in versions:
                versions[owner].setdefault(version, set()).add(symbol)
            elif not version and symbol not in defined and re.match(r"(cu|nv|nccl)", symbol):
                unversioned.add(symbol)
    # Symbols without a version bind to whichever library has them.
    for name in sorted(missing)[:1]:
        versions[name].setdefault("", set()).update(unversioned)
    for name in missing:
        write_stub(torch_lib / name, versions[name] or {"": set()})
    print(f"torch_cpu_stubs: {len(missing)} libraries stubbed: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
