"""run, compare and bench on a GPU, or on the emulated one (tests/emu/backend.cmake)."""

import unittest

from support import Call, CliTest, decode, load


class Gpu(CliTest):
    def test_bench_times_the_stages_of_every_kind_of_attention(self):
        document = self.run_json("bench", "--backend", "cuda", "--tokens", "70", "--repeats", "1",
                                 "--shapes", "hunyuanvideo-1.5,gqa")
        results = document["results"]
        self.assertEqual([(r["case"], r["recipe"]) for r in results],
                         [(case, recipe) for case in ("hunyuanvideo-1.5", "gqa")
                          for recipe in ("vc8", "vc8-fast", "vc8-shaped")])
        for r in results:
            self.assert_result(r)
            self.assertEqual(r["backend"], "cuda")
            self.assertTrue(r["kernel"].startswith("sm"))
            self.assertTrue(r["finite"])
            self.assertLess(r["rel_l2"], 0.12)
            self.assertEqual(r["shape"]["hq"], r["full_shape"]["hq"])
            stages = r["stages"]
            for stage in ("attention", "preparation", "grouping", "grouping_warm"):
                self.assertGreater(stages[stage]["min_ms"], 0.0, stage)
                self.assertLessEqual(stages[stage]["min_ms"], stages[stage]["median_ms"])
                self.assertLessEqual(stages[stage]["median_ms"], stages[stage]["max_ms"])
            # A schedule of 50 steps groups in a quarter of them, at most.
            self.assertLess(stages["grouping_scheduled_ms"], stages["grouping"]["max_ms"])
            self.assertAlmostEqual(stages["call_scheduled_ms"],
                                   r["time_ms"] + stages["grouping_scheduled_ms"])
            self.assertGreater(stages["workspace_bytes"], 0)

    def test_bench_prints_the_stages(self):
        text = self.run_vcattn("bench", "--backend", "cuda", "--tokens", "20", "--repeats", "1",
                               "--shapes", "head-64", "--recipes", "vc8").stdout
        for word in ("attention", "preparation", "grouping", "scheduled", "call", "rel_l2"):
            self.assertIn(word, text)

    def test_bench_refuses_what_the_kernels_do_not_compute(self):
        result = self.run_vcattn("bench", "--backend", "cuda", "--tokens", "8", "--shapes",
                                 "gqa", "--recipes", "vc4", code=4)
        self.assertIn("int8", result.stderr)

    def test_run_and_compare(self):
        call = Call(hq=2, hkv=1, sq=20, skv=70, d=64)
        source = self.file(call.tensors())
        result = self.run_json("run", source, "-o", self.path("out"), "--backend", "cuda", "--check")
        self.assertEqual(result["backend"], "cuda")
        self.assertLess(result["rel_l2"], 0.1)
        out = decode("F32", load(self.path("out"))[0]["out"][2])
        expected, _ = call.expected()
        error = sum((a - b) ** 2 for a, b in zip(out, expected)) / sum(b * b for b in expected)
        self.assertAlmostEqual(error ** 0.5, result["rel_l2"], places=3)
        document = self.run_json("compare", source, "--backend", "cuda", "--recipes",
                                 "vc8,vc8-fast")
        self.assertEqual([r["backend"] for r in document["results"]], ["cuda", "cuda"])


if __name__ == "__main__":
    unittest.main()
