"""Files that lie or do not fit: exit 3 and one line that names the file, never a crash."""

import json
import os
import pathlib
import struct
import unittest

from support import Call, CliTest, f32, i32, i64, load, save


def changed(**tensors):
    """A good call with tensors replaced, or removed where None."""
    all_tensors = {**Call().tensors(), **tensors}
    return {name: value for name, value in all_tensors.items() if value is not None}


def zeros(dtype, shape, size):
    count = 1
    for s in shape:
        count *= s
    return (dtype, shape, bytes(count * size))


class Contents(CliTest):
    def test_tensors_that_do_not_fit(self):
        cases = [
            (changed(q=None), "has no tensor 'q' (it holds:"),
            (changed(k=None), "has no tensor 'k'"),
            (changed(v=None), "has no tensor 'v'"),
            (changed(q=zeros("F64", [1, 2, 5, 8], 8)), "'q' is F64 (supported: F32, F16, BF16)"),
            (changed(k=zeros("I32", [1, 1, 7, 8], 4)), "'k' is I32 (supported"),
            (changed(v=zeros("BOOL", [1, 1, 7, 8], 1)), "'v' is BOOL (supported"),
            (changed(v=zeros("F3", [7], 1)), "unknown dtype 'F3'"),
            (changed(q=zeros("F32", [5, 8], 4)), "'q' has shape [5, 8] (supported: 4 axes"),
            (changed(q=zeros("F32", [], 4)), "'q' has shape []"),
            (changed(q=zeros("F32", [1, 2, 5, 0], 4)), "'q' has head dimension 0"),
            (changed(k=zeros("F32", [1, 1, 7, 0], 4)), "'k' has head dimension 0"),
            (changed(q=zeros("F32", [1, 1048576, 1048576, 0], 4)), "head dimension 0"),
            (changed(q=zeros("F32", [1, 2, 5, 257], 4), k=zeros("F32", [1, 1, 7, 257], 4),
                     v=zeros("F32", [1, 1, 7, 257], 4)), "supported: 1 to 256"),
            (changed(k=zeros("F32", [1, 1, 7, 16], 4)), "k: head dimension 16"),
            (changed(v=zeros("F32", [1, 1, 7, 16], 4)), "v: head dimension 16"),
            (changed(v=zeros("F32", [1, 1, 6, 8], 4)), "v: 6 tokens differ"),
            (changed(k=zeros("F32", [2, 1, 7, 8], 4)), "k: batch 2"),
            (changed(k=zeros("F32", [1, 3, 7, 8], 4), v=zeros("F32", [1, 3, 7, 8], 4)),
             "does not divide the 2 query heads"),
            (changed(key_lengths=("I32", [2], i32([1, 2]))), "'key_lengths' has shape [2]"),
            (changed(key_lengths=("F32", [1], f32([1]))), "'key_lengths' is F32"),
            (changed(key_lengths=("I32", [1], i32([8]))), "key_lengths: entry 0 is 8"),
            (changed(key_lengths=("I32", [1], i32([-1]))), "key_lengths: entry 0 is -1"),
            (changed(key_lengths=("I64", [1], i64([2**32 + 3]))), "entry 0 is 4294967299"),
            (changed(mask=zeros("U8", [5, 7], 1)), "'mask' is U8"),
            (changed(mask=zeros("BOOL", [5], 1)), "'mask' has shape [5]"),
            (changed(mask=zeros("BOOL", [5, 6], 1)), "mask: shape"),
        ]
        for tensors, says in cases:
            with self.subTest(says=says):
                source = self.file(tensors)
                for command in ("run", "compare"):
                    self.fails(3, command, source, "--json", says=(source, says))

    def test_layout_in_the_metadata(self):
        source = self.file(Call().tensors(), {"layout": "S\nBHD"})
        self.fails(3, "run", source, says=('layout "S\\x0aBHD"', "supported: BHSD, BSHD"))
        self.run_vcattn("run", source, "--layout", "BHSD")


class Files(CliTest):
    def test_files_that_are_none(self):
        self.fails(3, "run", self.path("none"), says="No such file")
        self.fails(3, "run", str(self.folder), says="not a regular file")
        self.fails(3, "run", "/dev/zero", says="not a regular file")
        os.mkfifo(self.path("fifo"))
        self.fails(3, "run", self.path("fifo"), says="not a regular file")

    def test_headers_that_lie(self):
        good = pathlib.Path(self.file(Call().tensors())).read_bytes()
        length = struct.unpack("<Q", good[:8])[0]
        header = json.loads(good[8:8 + length])

        def with_header(change):
            document = json.loads(json.dumps(header))
            change(document)
            text = json.dumps(document).encode()
            return struct.pack("<Q", len(text)) + text + good[8 + length:]

        cases = {
            "empty": (b"", "0 bytes"),
            "text": (b"not a safetensors file at all, just text", "header length"),
            "cut in the length": (good[:5], "5 bytes"),
            "cut in the header": (good[:8 + length // 2], "truncated"),
            "cut in the data": (good[:-1], "truncated"),
            "too long": (good + b"x", "after its last tensor"),
            "length of the moon": (struct.pack("<Q", 2**63) + good[8:], "header length"),
            "length over the end": (struct.pack("<Q", len(good)) + good[8:], "truncated"),
            "broken JSON": (good[:8] + b"[" + good[9:], "not JSON"),
            "deep": (struct.pack("<Q", 200000) + b"[" * 200000, "nests deeper"),
            "range": (with_header(lambda h: h["q"].update(data_offsets=[0, 2**40])), "outside"),
            "overlap": (with_header(lambda h: h["k"].update(data_offsets=[0, 224])), "overlap"),
            "negative": (with_header(lambda h: h["q"].update(shape=[1, 2, -5, 8])), "-5"),
            "overflow": (with_header(lambda h: h["q"].update(shape=[2**40] * 4)), "overflows"),
            "shape": (with_header(lambda h: h["q"].update(shape=[1, 2, 5, 9])), "not the size"),
            "dtype": (with_header(lambda h: h["q"].update(dtype="F16")), "not the size"),
        }
        for name, (content, says) in cases.items():
            with self.subTest(name=name):
                source = self.path("lie.safetensors")
                pathlib.Path(source).write_bytes(content)
                for command in ("run", "compare"):
                    self.fails(3, command, source, says=(source, says))

    def test_no_cut_of_a_file_crashes(self):
        good = pathlib.Path(self.file(Call().tensors())).read_bytes()
        for cut in list(range(0, 24)) + list(range(24, len(good), 97)):
            source = self.path("cut.safetensors")
            pathlib.Path(source).write_bytes(good[:cut])
            self.fails(3, "run", source)

    def test_failed_run_leaves_no_output(self):
        save(self.path("bad"), changed(v=None))
        self.fails(3, "run", self.path("bad"), "-o", self.path("out"))
        self.assertEqual([x.name for x in self.folder.iterdir()], ["bad"])

    def test_old_output_survives_a_failure(self):
        save(self.path("bad"), changed(v=None))
        save(self.path("out"), changed())
        self.fails(3, "run", self.path("bad"), "-o", self.path("out"))
        self.assertIn("q", load(self.path("out"))[0])


if __name__ == "__main__":
    unittest.main()
