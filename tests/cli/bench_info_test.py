"""vcattn bench and vcattn info."""

import unittest

from support import CliTest, RESULT_KEYS


class Bench(CliTest):
    def test_every_case_is_timed_and_right(self):
        document = self.run_json("bench", "--tokens", "64", "--repeats", "2", "--recipes",
                                 "exact,vc8")
        results = document["results"]
        cases = {r["case"] for r in results}
        for model in ("wan2.2", "longcat", "hunyuanvideo", "minimax"):
            self.assertTrue(any(c.startswith(model) for c in cases), model)
        self.assertEqual(len(results), 2 * len(cases))
        for r in results:
            self.assert_result(r)
            self.assertTrue(r["finite"])
            self.assertLess(r["rel_l2"], 0.1)
            self.assertEqual((r["repeats"], r["warmup"]), (2, 1))
            self.assertLessEqual(r["time_min_ms"], r["time_ms"])
            self.assertLessEqual(r["time_ms"], r["time_max_ms"])
            s = r["shape"]
            flops = 4 * s["b"] * s["hq"] * s["sq"] * s["skv"] * s["d"]
            self.assertAlmostEqual(r["tflops"] * r["time_ms"] * 1e9 / flops, 1.0, places=6)
            self.assertGreaterEqual(r["full_shape"]["sq"], s["sq"])
        self.assertTrue(document["machine"])

    def test_kinds_of_attention(self):
        results = self.run_json("bench", "--tokens", "600", "--repeats", "1", "--recipes", "exact",
                                "--shapes", "wan2.2-text,head-64,gqa")["results"]
        shapes = {r["case"]: r["shape"] for r in results}
        self.assertEqual((shapes["wan2.2-text"]["sq"], shapes["wan2.2-text"]["skv"]), (600, 512))
        self.assertEqual(shapes["head-64"]["d"], 64)
        self.assertEqual(shapes["gqa"]["hq"], 7 * shapes["gqa"]["hkv"])

    def test_tables_state_the_scale(self):
        text = self.run_vcattn("bench", "--tokens", "32", "--repeats", "1", "--shapes",
                               "wan2.2-480p", "--recipes", "exact").stdout
        self.assertIn("scaled from 40 heads, 32760 queries, 32760 keys", text)
        self.assertIn("TFLOP/s", text)


class Info(CliTest):
    def test_json(self):
        document = self.run_json("info")
        self.assertRegex(document["version"], r"^\d+\.\d+\.\d+$")
        cpu = [b for b in document["backends"] if b["name"] == "cpu"]
        self.assertEqual(len(cpu), 1)
        self.assertTrue(cpu[0]["available"] and cpu[0]["kernels"] and cpu[0]["status"])
        names = [r["name"] for r in document["recipes"]]
        for recipe in ("exact", "fp8", "sage2", "sage3", "vc8", "vc8-paper", "vc8-exp", "vc8-fast",
                       "vc8-shaped", "vc4"):
            self.assertIn(recipe, names)
        for recipe in document["recipes"]:
            self.assertTrue(recipe["summary"])
            self.assertIn("hadamard", recipe["fields"])
        self.assertLessEqual(RESULT_KEYS, set(document["typical"]))
        self.assertTrue(document["typical"]["explanation"])

    def test_fields_can_be_set_back(self):
        """Every field that info prints is one that --set takes, with that value."""
        for recipe in self.run_json("info")["recipes"]:
            changes = []
            for field, value in recipe["fields"].items():
                changes += ["--set", f"{field}={value}"]
            self.fails(3, "run", self.path("none"), *changes, says="cannot be opened")

    def test_text(self):
        text = self.run_vcattn("info").stdout
        for part in ("Backends", "cpu: available", "kernels:", "Recipes", "vc8", "kernel: cpu/"):
            self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()
