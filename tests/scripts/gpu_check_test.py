"""scripts/gpu_check with stand-ins for its binaries, and the file bench/cuda/record.py makes."""

import json
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

CLOCKS = """name, driver_version, clocks.current.sm [MHz], power.draw [W]
NVIDIA H200, 580.1, 1980 MHz, 130.00 W
NVIDIA H200, 580.1, 1500 MHz, 690.00 W
"""
PEERS = """cudnn-fp8 is not timed: No module named 'cudnn'
cudnn-bf16 1x2x300x128: 2.000 ms 100.0 TFLOP/s
cudnn-fp8 1x2x300x128: 1.000 ms 200.0 TFLOP/s (rel_l2 0.0500 against BF16)
cudnn-bf16 1x4x300x64: 2.000 ms 50.0 TFLOP/s
"""
RUNS = {"runs": [{"shape": [1, 2, 300, 128], "recipe": "vc8", "kernel_tflops": 250.0},
                 {"shape": [1, 4, 300, 64], "recipe": "vc8", "kernel_tflops": 75.0},
                 {"shape": [1, 4, 300, 32], "recipe": "vc8", "kernel_tflops": 1.0}]}
ROPE_RUNS = {"runs": [{"shape": [1, 2, 300, 128], "recipe": "vc8", "rope": "interleaved",
                       "kernel_tflops": 300.0}]}


class Record(unittest.TestCase):
    def test_fields_and_ratios(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "clocks.csv").write_text(CLOCKS)
            (folder / "peers.log").write_text(PEERS)
            (folder / "attention.json").write_text(json.dumps(RUNS))
            (folder / "attention-rope.json").write_text(json.dumps(ROPE_RUNS))
            printed = subprocess.run(
                [sys.executable, ROOT / "bench/cuda/record.py", folder, "abc1234"],
                check=True, capture_output=True, text=True).stdout
        record = json.loads(printed)
        self.assertEqual((record["device"], record["driver"], record["commit"]),
                         ("NVIDIA H200", "580.1", "abc1234"))
        before, after = record["clocks_before_and_after"]
        self.assertEqual(before["clocks.current.sm [MHz]"], "1980 MHz")
        self.assertEqual(after["power.draw [W]"], "690.00 W")
        self.assertEqual(len(record["peers"]), 3)
        self.assertEqual([run["kernel_ratio_to"] for run in record["runs"]],
                         [{"cudnn-bf16": 2.5, "cudnn-fp8": 1.25}, {"cudnn-bf16": 1.5}, {},
                          {"cudnn-bf16": 3.0, "cudnn-fp8": 1.5}])

    def test_the_recorded_results_say_where_they_are_from(self):
        record = json.loads((ROOT / "bench/results/h200-attention.json").read_text())
        for field in ("device", "driver", "commit", "command", "protocol"):
            self.assertTrue(record[field], field)
        self.assertEqual(len(record["clocks_before_and_after"]), 2)
        peers = {tuple(peer["shape"]) for peer in record["peers"]}
        self.assertEqual({tuple(run["shape"]) for run in record["runs"]}, peers)
        for run in record["runs"]:
            heads, tokens, dim = run["shape"][1:]
            flop = 4 * heads * tokens**2 * dim
            self.assertAlmostEqual(run["kernel_tflops"] * run["kernel"]["median_ms"] * 1e9 / flop,
                                   1.0, places=6)


class GpuCheck(unittest.TestCase):
    """A copy of the script beside stand-ins that print and exit as told."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/gpu_check", self.root / "scripts")
        (self.root / "build/gpu/lib").mkdir(parents=True)
        for name in ("cuda_test", "bug_cases_cuda_test", "vcattn_crosscheck",
                     "vcattn_crosscheck_gpu"):
            self.stand_in(name, 0)

    def stand_in(self, name, code):
        path = self.root / "build/gpu" / name
        path.write_text(f"#!/bin/sh\necho {name} ran\nexit {code}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_steps(self, *steps):
        return subprocess.run([self.root / "scripts/gpu_check", self.root / "out", *steps],
                              capture_output=True, text=True, check=False)

    def test_all_passed(self):
        result = self.run_steps("tests", "crosscheck")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("gpu_check: all passed", result.stdout)
        self.assertIn("bug_cases_cuda_test ran", (self.root / "out/bug_cases.log").read_text())

    def test_a_failing_program_fails_the_check(self):
        for name in ("cuda_test", "bug_cases_cuda_test", "vcattn_crosscheck_gpu",
                     "vcattn_crosscheck"):
            with self.subTest(name):
                self.stand_in(name, 1)
                result = self.run_steps("tests", "crosscheck")
                self.assertEqual(result.returncode, 1)
                self.assertIn("gpu_check: FAILED", result.stdout)
                self.stand_in(name, 0)

    def test_the_python_checks_run_where_they_are_packed(self):
        result = self.run_steps("python")
        self.assertEqual(result.returncode, 0)
        self.assertIn("not packed (scripts/python_gpu_pack): not run", result.stdout)
        (self.root / "build/gpu-python").mkdir()
        script = self.root / "scripts/python_gpu_check"
        for code in (0, 3):
            script.write_text(f'#!/bin/sh\necho "$@, ${{LD_LIBRARY_PATH-none}}"\nexit {code}\n')
            script.chmod(0o755)
            result = self.run_steps("python")
            self.assertEqual(result.returncode, int(code != 0))
            self.assertIn("out/python tests distributed, none", result.stdout)

    def test_an_unknown_step_is_named(self):
        result = self.run_steps("benhc")
        self.assertEqual(result.returncode, 2)
        self.assertIn("unknown step benhc", result.stderr)


if __name__ == "__main__":
    unittest.main()
