"""vcattn run: what is written and printed, against attention from the definition."""

import json
import math
import os
import pathlib
import subprocess
import unittest

from support import BINARY, Call, CliTest, RESULT_KEYS, bf16, decode, f32, i32, i64, load


def transposed(values, b, h, s, d):
    """BHSD to BSHD (or back, with h and s swapped)."""
    return [values[((i * h + k) * s + j) * d + c]
            for i in range(b) for j in range(s) for k in range(h) for c in range(d)]


class Outputs(CliTest):
    def run_exact(self, tensors, *arguments, metadata=None):
        """The tensors and metadata that `run --recipe exact` writes."""
        source = self.file(tensors, metadata)
        self.run_vcattn("run", source, "-o", self.path("out"), "--recipe", "exact", *arguments)
        return load(self.path("out"))

    def check(self, call, tensors, *arguments, metadata=None, **expected):
        written, _ = self.run_exact(tensors, *arguments, metadata=metadata)
        out, lse = call.expected(**expected)
        self.assert_close(decode("F32", written["out"][2]), out)
        self.assert_close(decode("F32", written["lse"][2]), lse)
        self.assertEqual(written["lse"][:2], ("F32", [call.b, call.hq, call.sq]))

    def test_plain(self):
        call = Call(b=2, hq=4, hkv=2)
        self.check(call, call.tensors())

    def test_scale(self):
        call = Call()
        self.check(call, call.tensors(), "--scale", "-0.25", scale=-0.25)

    def test_causal_is_aligned_bottom_right(self):
        for sq, skv in ((5, 7), (7, 5), (6, 6)):
            call = Call(sq=sq, skv=skv)
            self.check(call, call.tensors(), "--causal",
                       visible=lambda b, h, i, j: j <= i + skv - sq)

    def test_key_lengths(self):
        call = Call(b=3)
        for dtype, pack in (("I32", i32), ("I64", i64)):
            tensors = {**call.tensors(), "key_lengths": (dtype, [3], pack([7, 2, 0]))}
            self.check(call, tensors, visible=lambda b, h, i, j: j < [7, 2, 0][b])

    def test_boolean_mask(self):
        call = Call(b=2)
        bits = [(b + i * 3 + j) % 3 != 0 for b in range(2) for i in range(5) for j in range(7)]
        tensors = {**call.tensors(), "mask": ("BOOL", [2, 1, 5, 7], bytes(bits))}
        self.check(call, tensors, visible=lambda b, h, i, j: (b + i * 3 + j) % 3 != 0)

    def test_additive_mask_of_two_axes(self):
        call = Call()
        mask = [-math.inf if j > i else 0.0 for i in range(5) for j in range(7)]
        tensors = {**call.tensors(), "mask": ("F32", [5, 7], f32(mask))}
        self.check(call, tensors, visible=lambda b, h, i, j: j <= i)

    def test_layout_from_flag_or_metadata(self):
        call = Call(b=2, hq=4, hkv=2)
        c = call
        tensors = {"q": ("F32", [c.b, c.sq, c.hq, c.d], f32(transposed(c.q, c.b, c.hq, c.sq, c.d))),
                   "k": ("F32", [c.b, c.skv, c.hkv, c.d],
                         f32(transposed(c.k, c.b, c.hkv, c.skv, c.d))),
                   "v": ("F32", [c.b, c.skv, c.hkv, c.d],
                         f32(transposed(c.v, c.b, c.hkv, c.skv, c.d)))}
        out, lse = call.expected()
        for arguments, metadata in ((["--layout", "BSHD"], None), ([], {"layout": "BSHD"}),
                                    (["--layout", "BSHD"], {"layout": "BHSD"})):
            written, notes = self.run_exact(tensors, *arguments, metadata=metadata)
            self.assertEqual(written["out"][1], [c.b, c.sq, c.hq, c.d])
            self.assertEqual(notes["layout"], "BSHD")
            values = decode("F32", written["out"][2])
            self.assert_close(transposed(values, c.b, c.sq, c.hq, c.d), out)
            self.assert_close(decode("F32", written["lse"][2]), lse)

    def test_three_axes_are_batch_one(self):
        call = Call()
        tensors = {name: (dtype, shape[1:], data)
                   for name, (dtype, shape, data) in call.tensors().items()}
        written, _ = self.run_exact(tensors)
        self.assertEqual(written["out"][1], [2, 5, 8])
        self.assert_close(decode("F32", written["out"][2]), call.expected()[0])

    def test_mixed_dtypes_and_output_dtype_of_q(self):
        call = Call()
        call.q = decode("BF16", bf16(call.q))
        tensors = {**call.tensors(), "q": ("BF16", [1, 2, 5, 8], bf16(call.q))}
        written, _ = self.run_exact(tensors)
        self.assertEqual(written["out"][0], "BF16")
        self.assert_close(decode("BF16", written["out"][2]), call.expected()[0], 2e-2)
        self.assert_close(decode("F32", written["lse"][2]), call.expected()[1])

    def test_no_queries_or_no_keys(self):
        written, _ = self.run_exact(Call(sq=0).tensors())
        self.assertEqual(written["out"], ("F32", [1, 2, 0, 8], b""))
        call = Call(skv=0)
        self.check(call, call.tensors())
        self.run_json("compare", self.file(Call(sq=0).tensors()))

    def test_metadata_is_kept_and_extended(self):
        _, notes = self.run_exact(Call().tensors(), metadata={"model": "toy", "note": "a\nb"})
        self.assertEqual((notes["model"], notes["note"]), ("toy", "a\nb"))
        self.assertEqual((notes["recipe"], notes["layout"]), ("exact", "BHSD"))

    def test_output_may_replace_its_own_input(self):
        call = Call()
        source = self.file(call.tensors())
        self.run_vcattn("run", source, "-o", source, "--recipe", "exact")
        self.assert_close(decode("F32", load(source)[0]["out"][2]), call.expected()[0])

    def test_nothing_is_written_without_an_output(self):
        source = self.file(Call().tensors())
        result = self.run_vcattn("run", source)
        self.assertIn("nothing (no -o)", result.stdout)
        self.assertEqual([x.name for x in self.folder.iterdir()], [pathlib.Path(source).name])


class Reports(CliTest):
    def test_json_fields(self):
        source = self.file(Call().tensors())
        result = self.run_json("run", source)
        self.assert_result(result)
        self.assertEqual(result["shape"], {"b": 1, "hq": 2, "hkv": 1, "sq": 5, "skv": 7, "d": 8})
        for name in ("rel_l2", "cosine", "max_abs", "lse_max_abs", "worst_head", "worst_row"):
            self.assertIsNone(result[name])
        self.assertEqual((result["recipe"], result["backend"]), ("vc8", "cpu"))
        self.assertTrue(result["finite"])
        self.assertTrue(result["explanation"])

    def test_check(self):
        source = self.file(Call(skv=200).tensors())
        exact = self.run_json("run", source, "--recipe", "exact", "--check")
        low_bit = self.run_json("run", source, "--check")
        self.assertLess(exact["rel_l2"], 1e-6)
        self.assertLess(exact["lse_max_abs"], 1e-5)
        self.assertLess(exact["rel_l2"], low_bit["rel_l2"])
        self.assertLess(low_bit["rel_l2"], 0.1)
        self.assertGreater(low_bit["cosine"], 0.99)
        self.assertLessEqual(RESULT_KEYS, set(low_bit))
        text = self.run_vcattn("run", source, "--check").stdout
        for label in ("rel_l2", "cosine", "max_abs", "lse_max_abs", "worst head", "worst row"):
            self.assertIn(label, text)

    def test_reference_rows(self):
        source = self.file(Call(sq=50).tensors())
        result = self.run_vcattn("run", source, "--check", "--reference-rows", "3", "--json")
        self.assertIn("3 rows of 50", result.stderr)

    def test_bound(self):
        source = self.file(Call().tensors())
        self.run_vcattn("run", source, "--max-rel-l2", "0.5")
        result = self.run_vcattn("run", source, "--max-rel-l2", "1e-9", "--json", code=5)
        self.assertIn("exceeds the bound 1e-09", result.stderr)
        self.assertIn('"rel_l2"', result.stdout)

    def test_stderr_says_which_kernel_runs_and_why_without_escape_codes(self):
        result = self.run_vcattn("run", self.file(Call().tensors()), "--json")
        self.assertRegex(result.stderr, r"^vcattn: vc8 on cpu/\S+: .+\n$")
        self.assertNotIn("\x1b", result.stderr + result.stdout)

    def test_progress_on_a_terminal_is_drawn_and_removed(self):
        source = self.file(Call(sq=300, skv=300).tensors())
        terminal, stderr = os.openpty()
        result = subprocess.run([BINARY, "run", source, "--json"], stdout=subprocess.PIPE,
                                stderr=stderr, timeout=60, check=True)
        os.close(stderr)
        text = os.read(terminal, 1 << 16).decode()
        os.close(terminal)
        self.assertIn("vc8 [", text)
        self.assertIn("100%", text)
        self.assertTrue(text.endswith("\r\x1b[K"), text[-20:])
        json.loads(result.stdout)

    def test_set_changes_a_field(self):
        source = self.file(Call(skv=200).tensors())
        result = self.run_json("run", source, "--set", "hadamard=off", "--set", "v_smooth=off")
        self.assertEqual(result["set"], ["hadamard=off", "v_smooth=off"])
        self.assertIn("V is not smoothed.", result["explanation"])

    def test_every_recipe_runs(self):
        source = self.file(Call(skv=200, d=40).tensors())
        recipes = [row["name"] for row in self.run_json("info")["recipes"]]
        self.assertGreaterEqual(len(recipes), 9)
        for recipe in recipes:
            result = self.run_json("run", source, "--recipe", recipe, "--check")
            self.assertEqual(result["recipe"], recipe)
            self.assertLess(result["rel_l2"], 0.35, recipe)


class NonFinite(CliTest):
    def test_nan_among_the_inputs(self):
        for tensor in ("q", "k", "v"):
            call = Call()
            getattr(call, tensor)[3] = math.nan
            source = self.file(call.tensors())
            result = self.run_vcattn("run", source, "--check", code=3)
            self.assertIn(f"vcattn: warning: {source}: NaN or infinity among the inputs",
                          result.stderr)
            document = self.run_json("run", source, "--check", "-o", self.path("out"), code=3)
            out = decode("F32", load(self.path("out"))[0]["out"][2])
            self.assertTrue(any(math.isnan(x) for x in out))
            self.assertFalse(document["finite"])
            self.assertIsNone(document["rel_l2"])
            self.run_json("compare", source, code=3)

    def test_nan_in_hidden_keys_is_nobodys_business(self):
        call = Call()
        call.k[-1] = call.v[-1] = math.nan  # key 6 of 7
        tensors = {**call.tensors(), "key_lengths": ("I32", [1], i32([6]))}
        self.assertTrue(self.run_json("run", self.file(tensors))["finite"])
        mask = [0.0] * 6 + [-math.inf]
        tensors = {**call.tensors(), "mask": ("F32", [1, 1, 1, 7], f32(mask))}
        self.assertTrue(self.run_json("run", self.file(tensors))["finite"])


if __name__ == "__main__":
    unittest.main()
