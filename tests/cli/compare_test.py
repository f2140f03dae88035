"""vcattn compare: tables, JSON and the page."""

import html.parser
import pathlib
import re
import unittest

from support import Call, CliTest


class Compare(CliTest):
    def test_one_result_per_input_and_recipe(self):
        a = self.file(Call(skv=200).tensors(), name="a")
        b = self.file(Call(b=2, hq=4, hkv=2).tensors(), name="b")
        document = self.run_json("compare", a, b, "--recipes", "exact,vc8,vc4")
        self.assertEqual([(r["input"], r["recipe"]) for r in document["results"]],
                         [(x, y) for x in (a, b) for y in ("exact", "vc8", "vc4")])
        for result in document["results"]:
            self.assert_result(result)
            for name in ("rel_l2", "cosine", "max_abs", "lse_max_abs"):
                self.assertIsInstance(result[name], float)
            self.assertEqual(set(result["worst_head"]), {"batch", "head", "rel_l2"})
            self.assertEqual(set(result["worst_row"]), {"batch", "head", "row", "cosine"})
            self.assertEqual((result["repeats"], result["warmup"]), (1, 0))
        for name in ("version", "date", "machine", "command"):
            self.assertTrue(document[name])
        self.assertRegex(document["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")

    def test_worst_head_is_the_worst(self):
        call = Call(hq=3, hkv=3, skv=256, d=16)
        for i in range(256 * 16, 2 * 256 * 16):  # outliers in one value head
            call.v[i] *= 100.0 if i % 16 == 0 else 0.01
        document = self.run_json("compare", self.file(call.tensors()), "--recipes", "fp8")
        head = document["results"][0]["worst_head"]
        self.assertGreaterEqual(head["rel_l2"], document["results"][0]["rel_l2"])

    def test_tables_and_summary(self):
        a = self.file(Call(seed=1).tensors(), name="a")
        b = self.file(Call(seed=2).tensors(), name="b")
        one = self.run_vcattn("compare", a).stdout
        self.assertNotIn("all 1 inputs", one)
        rows = [line.split()[0] for line in one.splitlines() if line]
        for recipe in ("exact", "sage2", "vc8", "sage3", "vc4"):
            self.assertIn(recipe, rows)
        two = self.run_vcattn("compare", a, b).stdout
        self.assertIn("all 2 inputs", two)

    def test_repeats_are_warmed_up(self):
        source = self.file(Call().tensors())
        result = self.run_json("compare", source, "--recipes", "exact", "--repeats", "3")
        spread = result["results"][0]
        self.assertEqual((spread["repeats"], spread["warmup"]), (3, 1))
        self.assertLessEqual(spread["time_min_ms"], spread["time_ms"])
        self.assertLessEqual(spread["time_ms"], spread["time_max_ms"])


class Markup(html.parser.HTMLParser):
    """Balanced tags, and what the page would fetch."""

    VOID = {"meta", "rect", "path", "br", "!doctype"}

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.count, self.text = [], [], {}, ""

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.fetched += [v for k, v in attrs if k in ("src", "href", "data", "srcset")]
        if tag not in self.VOID or (tag == "rect" and "/" not in self.get_starttag_text()[-2:]):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        self.text += data


class Page(CliTest):
    def page(self, *inputs, recipes="exact,sage2,vc8,sage3,vc4"):
        target = self.path("page.html")
        result = self.run_vcattn("compare", *inputs, "--recipes", recipes, "--html", target)
        self.assertIn(f"report: {target}", result.stdout)
        text = pathlib.Path(target).read_text(encoding="utf-8")
        markup = Markup()
        markup.feed(text)
        self.assertEqual(markup.open, [])
        self.assertEqual(markup.fetched, [])
        self.assertNotIn("script", markup.count)
        for outside in ("http:", "https:", "@import", "url("):
            self.assertNotIn(outside, text)
        self.assertNotRegex(re.sub(r"<style>.*</style>", "", text, flags=re.S), r"\b(nan|inf)\b")
        return text, markup

    def test_holds_every_picture_and_number(self):
        source = self.file(Call(hq=3, hkv=3, skv=300, d=16).tensors(), {"model": "toy"})
        text, markup = self.page(source)
        self.assertEqual(markup.count["figure"], 4)
        self.assertEqual(markup.count["svg"], 6)
        for title in ("Error per head and recipe", "Distribution of the error",
                      "What V-Smooth removes", "Probability bytes of ExpCast",
                      "What ran, and why", "Where the numbers come from"):
            self.assertIn(title, text)
        self.assertIn("79.6 % of the octave", markup.text)
        self.assertIn("model = toy", markup.text)
        self.assertIn("prefers-color-scheme: dark", text)
        self.assertIn("--html", markup.text)  # the command
        self.assertIn("k-means over V", markup.text)  # the plan

    def test_several_inputs(self):
        a = self.file(Call(seed=1).tensors(), name="a")
        b = self.file(Call(b=2, hq=40, hkv=8, seed=2).tensors(), name="b")
        _, markup = self.page(a, b, recipes="exact,fp8,sage2,vc8,vc8-paper,vc8-exp,vc8-fast,vc4")
        self.assertIn("All 2 inputs", markup.text)

    def test_pictures_that_do_not_apply_are_left_out(self):
        source = self.file(Call().tensors())
        text, markup = self.page(source, recipes="exact")
        self.assertNotIn("What V-Smooth removes", text)
        self.assertNotIn("Probability bytes", text)
        self.assertNotIn("Error per head", text)
        self.page(self.file(Call(sq=0).tensors(), name="empty"))

    def test_text_from_files_is_escaped(self):
        source = self.file(Call().tensors(), {"<script>alert(1)</script>": "\"'&<b>"},
                           name="<i>&.safetensors")
        text, markup = self.page(source)
        self.assertNotIn("<script", text)
        self.assertIn("<script>alert(1)</script> = \"'&<b>", markup.text)

    def test_failure_leaves_the_old_page(self):
        pathlib.Path(self.path("page.html")).write_text("old")
        self.fails(3, "compare", self.path("none"), "--html", self.path("page.html"))
        self.assertEqual(pathlib.Path(self.path("page.html")).read_text(), "old")
        self.assertEqual(len(list(self.folder.iterdir())), 1)


if __name__ == "__main__":
    unittest.main()
