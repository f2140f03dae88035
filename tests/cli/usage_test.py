"""A command line that is wrong, and outputs that cannot be written: exit codes and messages."""

import os
import subprocess
import unittest

from support import BINARY, Call, CliTest


class Usage(CliTest):
    def test_help_lists_commands_and_exit_codes(self):
        text = self.run_vcattn("--help").stdout
        for part in ("run", "compare", "bench", "info", "Exit codes", "5  worse"):
            self.assertIn(part, text)
        for command in ("run", "compare", "bench", "info"):
            self.assertIn("Exit codes", self.run_vcattn(command, "--help").stdout)
        self.assertRegex(self.run_vcattn("--version").stdout, r"^vcattn \d+\.\d+\.\d+\n$")

    def test_wrong_command_lines(self):
        source = self.file(Call().tensors())
        cases = [
            ([], "supported: run, compare, bench, info"),
            (["walk"], "supported: run, compare, bench, info"),
            (["--fast"], "supported: run, compare, bench, info"),
            (["run"], "input is required"),
            (["compare"], "inputs is required"),
            (["run", source, "--quick"], "--quick (supported: --help, input, --output"),
            (["run", source, "extra"], "extra"),
            (["run", source, "--recipe", "vc9"], '"vc9" is not known (supported: exact, fp8'),
            (["compare", source, "--recipes", "exact,vc9"], '"vc9" is not known (supported: exact'),
            (["bench", "--recipes", "vc9"], '"vc9" is not known (supported: exact'),
            (["bench", "--shapes", "wan9"], '"wan9" is not known (supported: wan2.2-480p'),
            (["bench", "--tokens", "0"], "not in range"),
            (["bench", "--repeats", "0"], "not in range"),
            (["run", source, "--set", "hadamard"], "field=value"),
            (["run", source, "--set", "hadamrd=on"], "supported: qk, q_scale_rows"),
            (["run", source, "--set", "hadamard=perhaps"], "supported: on, off"),
            (["run", source, "--set", "q_scale_rows=-1"], "a number from 0"),
            (["run", source, "--set", "v=nvfp4"], "nvfp4 values need"),
            (["run", source, "--backend", "tpu"], "tpu not in {auto,cpu,cuda}"),
            (["run", source, "--layout", "SBHD"], "SBHD not in {BHSD,BSHD}"),
            (["run", source, "--scale", "big"], "--scale = big"),
            (["run", source, "--scale", "inf"], "not finite"),
            (["run", source, "--scale", "nan"], "not finite"),
            (["run", source, "--max-rel-l2"], "--max-rel-l2"),
            (["run", source, "--reference-rows", "0"], "--reference-rows"),
            (["compare", source, "--repeats", "0"], "not in range"),
        ]
        for arguments, says in cases:
            with self.subTest(arguments=arguments):
                self.fails(2, *arguments, says=says)

    def test_backend_this_build_lacks(self):
        names = [b["name"] for b in self.run_json("info")["backends"]]
        if "cuda" in names:
            self.skipTest("this build has cuda")
        source = self.file(Call().tensors())
        self.fails(4, "run", source, "--backend", "cuda", says="cuda is not part of this build")
        self.fails(4, "compare", source, "--backend", "cuda", says="cuda")


class Outputs(CliTest):
    def test_places_that_cannot_be_written(self):
        source = self.file(Call().tensors())
        for flag, command in (("-o", "run"), ("--html", "compare")):
            self.fails(1, command, source, flag, self.path("no/folder"), says="cannot be created")
            self.fails(1, command, source, flag, "/dev/null", says="not a regular file")
            self.fails(1, command, source, flag, str(self.folder), says="not a regular file")
        self.assertEqual(len(list(self.folder.iterdir())), 1)

    @unittest.skipUnless(os.path.exists("/dev/full"), "needs /dev/full")
    def test_full_stdout(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([BINARY, "info"], stdout=full, stderr=subprocess.PIPE,
                                    text=True, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn("vcattn: error:", result.stderr)


if __name__ == "__main__":
    unittest.main()
