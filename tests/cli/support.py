"""Safetensors, attention and the binary, with nothing but the standard library."""

import array
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unittest

BINARY = os.environ["VCATTN_BINARY"]
SHAPE_KEYS = {"b", "hq", "hkv", "sq", "skv", "d"}
RESULT_KEYS = {"recipe", "backend", "kernel", "shape", "time_ms", "rel_l2", "cosine", "max_abs",
               "lse_max_abs", "finite", "worst_head", "worst_row"}


def f32(values):
    return array.array("f", values).tobytes()


def i32(values):
    return array.array("i", values).tobytes()


def i64(values):
    return array.array("q", values).tobytes()


def bf16(values):
    """Truncated; exact for values that bfloat16 holds."""
    return b"".join(f32([v])[2:] for v in values)


def decode(dtype, data):
    if dtype == "F32":
        return list(array.array("f", data))
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    raise AssertionError(dtype)


def save(path, tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes)."""
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def load(path):
    """name -> (dtype, shape, bytes), and the metadata."""
    content = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data = content[8 + length:]
    return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])])
            for name, e in header.items()}, metadata


def normals(seed, count):
    generator = random.Random(seed)
    return [generator.gauss(0.0, 1.0) for _ in range(count)]


class Call:
    """A small float32 call in BHSD, and its exact answer from the definition."""

    def __init__(self, b=1, hq=2, hkv=1, sq=5, skv=7, d=8, seed=0):
        self.b, self.hq, self.hkv, self.sq, self.skv, self.d = b, hq, hkv, sq, skv, d
        self.q = normals(seed, b * hq * sq * d)
        self.k = normals(seed + 1, b * hkv * skv * d)
        self.v = normals(seed + 2, b * hkv * skv * d)
        # As they are stored.
        self.q, self.k, self.v = (list(array.array("f", x)) for x in (self.q, self.k, self.v))

    def tensors(self):
        return {"q": ("F32", [self.b, self.hq, self.sq, self.d], f32(self.q)),
                "k": ("F32", [self.b, self.hkv, self.skv, self.d], f32(self.k)),
                "v": ("F32", [self.b, self.hkv, self.skv, self.d], f32(self.v))}

    def row(self, values, heads, tokens, b, h, s):
        start = ((b * heads + h) * tokens + s) * self.d
        return values[start:start + self.d]

    def expected(self, scale=None, visible=lambda b, h, i, j: True):
        """out and lse as flat lists in BHSD."""
        scale = self.d ** -0.5 if scale is None else scale
        out, lse = [], []
        for b in range(self.b):
            for h in range(self.hq):
                kv = h * self.hkv // self.hq
                for i in range(self.sq):
                    q = self.row(self.q, self.hq, self.sq, b, h, i)
                    keys = [j for j in range(self.skv) if visible(b, h, i, j)]
                    if not keys:
                        out += [0.0] * self.d
                        lse.append(-math.inf)
                        continue
                    scores = [scale * math.fsum(x * y for x, y in zip(
                        q, self.row(self.k, self.hkv, self.skv, b, kv, j))) for j in keys]
                    top = max(scores)
                    weights = [math.exp(s - top) for s in scores]
                    total = math.fsum(weights)
                    lse.append(top + math.log(total))
                    rows = [self.row(self.v, self.hkv, self.skv, b, kv, j) for j in keys]
                    out += [math.fsum(w * r[c] for w, r in zip(weights, rows)) / total
                            for c in range(self.d)]
        return out, lse


class CliTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def path(self, name):
        return str(self.folder / name)

    def file(self, tensors, metadata=None, name="in.safetensors"):
        save(self.path(name), tensors, metadata)
        return self.path(name)

    def run_vcattn(self, *arguments, code=0):
        result = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, code, f"{arguments}\n{result.stdout}{result.stderr}")
        return result

    def run_json(self, *arguments, code=0):
        """stdout must be one JSON object and nothing else; NaN and Infinity are not JSON."""
        def refuse(token):
            raise AssertionError(f"{token} is not JSON")
        output = self.run_vcattn(*arguments, "--json", code=code).stdout
        result = json.loads(output, parse_constant=refuse)
        self.assertIsInstance(result, dict)
        return result

    def fails(self, code, *arguments, says=()):
        """One line on stderr that says it all, nothing on stdout."""
        result = self.run_vcattn(*arguments, code=code)
        self.assertEqual(result.stdout, "")
        lines = [x for x in result.stderr.splitlines() if x.startswith("vcattn: error:")]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertEqual(lines[0], result.stderr.splitlines()[-1])
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, lines[0])
        return lines[0]

    def assert_close(self, actual, expected, tolerance=2e-6):
        self.assertEqual(len(actual), len(expected))
        for a, e in zip(actual, expected):
            self.assertTrue(a == e or abs(a - e) <= tolerance, f"{a} is not {e}")

    def assert_result(self, result):
        self.assertLessEqual(RESULT_KEYS, set(result))
        self.assertEqual(set(result["shape"]), SHAPE_KEYS)
        self.assertGreater(result["time_ms"], 0.0)
