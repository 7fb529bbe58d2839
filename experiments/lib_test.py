"""The parts of a study that need no processes: what is kept, when it is run again, what is refused."""

import contextlib
import glob
import importlib.util
import io
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

from lib import chain, crossover, machine, page, paper, plots, results, runner

FACTS = {"cpu": "a cpu", "cores": "2", "memory_gib": "24", "kernel": "6", "commit": "abc"}
POINT = {"engine": "shoal", "records": 100, "queries": 10, "repetition": 1, "epsilon": 0.1}


def until(condition):
    """Waits for it as long as a test may take: only what never happens fails."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


class ResultsTest(unittest.TestCase):
    def setUp(self):
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.path = os.path.join(self._directory.name, "sub", "points.csv")

    def open(self, facts=None):
        return results.Results(self.path, results.POINT, results.MEASURED, facts or FACTS)

    def test_a_finished_point_is_found_again(self):
        kept = self.open()
        self.assertFalse(kept.has(POINT))
        kept.add(POINT, {"online_s": 0.25}, "2026-01-01T00:00:00+00:00")
        again = self.open()
        self.assertTrue(again.has(POINT))
        self.assertFalse(again.has({**POINT, "queries": 11}))
        self.assertFalse(again.has({**POINT, "repetition": 2}))
        self.assertEqual(again.rows[0]["online_s"], "0.25")
        self.assertEqual(again.rows[0]["commit"], "abc")

    def test_a_line_that_a_crash_cut_short_is_dropped(self):
        self.open().add(POINT, {"online_s": 0.25}, "now")
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("shoal,dense,10")
        kept = self.open()
        self.assertEqual(len(kept.rows), 1)
        kept.add({**POINT, "queries": 20}, {}, "now")
        self.assertEqual(len(self.open().rows), 2)

    def test_another_commit_or_machine_is_not_mixed_in(self):
        self.open().add(POINT, {}, "now")
        for field in machine.FIELDS:
            with self.assertRaisesRegex(results.StaleResults, field):
                self.open({**FACTS, field: "other"})

    def test_other_columns_are_refused(self):
        self.open().add(POINT, {}, "now")
        with self.assertRaisesRegex(results.StaleResults, "other columns"):
            results.Results(self.path, ("engine",), results.MEASURED, FACTS)

    def test_unknown_or_repeated_columns_are_a_mistake(self):
        with self.assertRaises(KeyError):
            self.open().add(POINT, {"onlin_s": 1}, "now")
        with self.assertRaises(KeyError):
            self.open().add(POINT, {"queries": 10}, "now")


class AnswersTest(unittest.TestCase):
    GOOD = {"answers_compared_with_table": 1, "answers_correct": 5, "answers_wrong": 0, "answers_failed": 0,
            "keys_failed": 0, "devices_lost": 0}

    def test_good_answers_pass(self):
        chain.check_answers(self.GOOD, 5)

    def test_anything_else_is_loud(self):
        for change in ({"answers_compared_with_table": 0}, {"answers_wrong": 1}, {"answers_failed": 1},
                       {"keys_failed": 1}, {"devices_lost": 1}, {"answers_correct": 4}):
            with self.assertRaises(chain.WrongAnswers, msg=change):
                chain.check_answers({**self.GOOD, **change}, 5)


class ChainTest(unittest.TestCase):
    def test_a_crowd_sends_exactly_the_queries(self):
        for queries in (1, 10, 999, 1000, 12345, 10**6):
            for rows in (7, 625, 100_000):
                devices = chain.few_devices(queries, rows)
                self.assertEqual(queries % devices, 0)
                self.assertLessEqual(queries // devices, min(rows, 1000))
        self.assertEqual(chain.few_devices(10**6, 6250), 1000)

    def test_records_have_one_length_each(self):
        self.assertEqual({len(chain.hashed_key(i)) for i in (0, 999_999_999)}, {24})
        self.assertEqual({len(chain.value(i, 4)) for i in range(1000)}, {4})
        self.assertEqual({len(chain.value(i, 12)) for i in range(1000)}, {12})

    def test_noise_keeps_every_digit(self):
        noise = {"mechanism": "geometric", "epsilon": 0.1, "delta": 1e-06, "phi": 1, "mode": 127,
                 "left_scale": 12.982998147641723, "right_scale": 43.523319553143956}
        self.assertIn("left_scale: 12.982998147641723", chain.noise_text(noise))
        self.assertIn("mechanism: GEOMETRIC", chain.noise_text(noise))

    def test_ports_are_given_once(self):
        # Only random, two draws would be the same with probability 0.98.
        held = [chain.Ports(3) for _ in range(100)]
        self.assertEqual(len({ports.first for ports in held}), 100)
        for ports in held:
            self.assertIn(ports.first, range(20000, 32000, 10))
            with socket.socket() as server:
                server.bind(("127.0.0.1", ports.first + 2))
            ports.close()
        with self.assertRaises(chain.Failed):
            chain.Ports(11)


class PaperTest(unittest.TestCase):
    def test_points_of_a_figure(self):
        points = paper.points("figure3")
        self.assertEqual(len(points), 9)
        self.assertEqual(paper.series(points, "queries", "offline_seconds")[-1], (1e7, 6066.328))
        self.assertEqual(paper.series(points, "queries", "online_seconds")[-1], (1e8, 41.845))
        with self.assertRaises(KeyError):
            paper.points("figure33")

    def test_tables_of_engines_with_hints(self):
        line, = paper.piano("table1", system="piano", table_gb=1)
        self.assertEqual((line["rows"], line["prepare_s"], line["online_ms"]), (2**27, 1438, 7.9))
        self.assertEqual([line["extrapolated"] for line in paper.piano("table1", system="simplepir")], [0, 0, 1])
        line, = paper.treepir("figure8", system="treepir+spiral")
        self.assertEqual((line["rows"], line["query_ms"], line["recursion_ms"]), (2**22, 89, 61))
        # Nothing is stated, which is not nought.
        self.assertIsNone(paper.treepir("figure7", system="prp-pir")[0]["query_ms"])
        for read in (paper.piano, paper.treepir, paper.smallpir):
            with self.assertRaises(KeyError):
                read("figure33")

    def test_small_pir_tables_agree_but_for_two_rows(self):
        self.assertEqual([len(paper.smallpir(f"table{i}")) for i in range(1, 7)], [17, 21, 5, 4, 3, 3])
        # One key for 2^k values takes k 2^(k - 1) automorphisms, k keys take one less than there are values.
        for line in paper.smallpir("table1", system="smallpir"):
            log = math.log2(line["packed"])
            self.assertEqual((line["depth"], line["count"]),
                             (line["packed"] - 1, log * line["packed"] / 2) if line["keys"] == 1 else (log, line["packed"] - 1))
        differ = {}
        for line in paper.smallpir("table3"):
            for other in paper.smallpir("table2"):
                if other["configuration"] == line["configuration"] and other["request_kib"] != line["request_kib"]:
                    differ[line["configuration"]] = other["request_kib"], line["request_kib"]
        self.assertEqual(differ, {"1gb-b": (232, 278), "1gb-c": (350, 378)})

    def test_table_3_is_the_formula_at_the_epsilon_that_we_say(self):
        for line in paper.table3():
            self.assertEqual(math.floor(2 * math.log(1 / line["delta"]) / line["epsilon"]), line["bound"])


class CrossoverTest(unittest.TestCase):
    def test_seconds_follow_the_points(self):
        time = crossover.CompletionTime([(1000, 3.0), (1, 1.0)])
        self.assertEqual(time.seconds(0), 1.0)
        self.assertEqual(time.seconds(1000), 3.0)
        self.assertAlmostEqual(time.seconds(1999), 5.0, delta=0.01)

    def test_where_two_lines_meet(self):
        time = crossover.CompletionTime([(1, 10.0), (1001, 10.0), (2001, 15.0)])  # from 1001 on, 0.005 s a query
        self.assertAlmostEqual(time.crossover(0.1), 100)           # while it is flat
        self.assertAlmostEqual(time.crossover(0.1, factor=5), 500)
        self.assertAlmostEqual(time.crossover(0.008), 1665)        # while it rises
        self.assertAlmostEqual(time.seconds(1665), 0.008 * 1665)
        self.assertAlmostEqual(time.crossover(0.006), 4995)        # beyond what was measured
        self.assertIsNone(time.crossover(0.0049))
        self.assertIsNone(time.crossover(0.049, factor=10))

    def test_a_dip_of_the_measurement_is_no_gain(self):
        time = crossover.CompletionTime([(1, 10.0), (100, 9.0), (1000, 9.5)])
        self.assertEqual(time.seconds(10**6), 10.0)

    def test_one_point_is_flat(self):
        self.assertEqual(crossover.CompletionTime([(5, 2.0)]).crossover(0.5), 4.0)

    def test_a_power_of_the_size(self):
        points = [(100, 10, 1.0), (100, 1000, 50.0), (10_000, 1000, 500.0)]  # sqrt(n)
        self.assertAlmostEqual(crossover.per_query(points, 100), 0.05)
        self.assertAlmostEqual(crossover.per_query(points, 1000), 0.05 * math.sqrt(10))
        self.assertAlmostEqual(crossover.per_query(points, 10**6), 5.0)
        self.assertAlmostEqual(crossover.per_query(points, 1), 0.005)
        with self.assertRaises(ValueError):
            crossover.per_query([(100, 10, 1.0)], 200)

    def test_the_authors_points_meet_near_where_they_say(self):
        checklist = [(p["database_rows"], p["queries"], p["online_seconds"])
                     for p in paper.points("figure1", "checklist-punc")]
        time = crossover.CompletionTime(paper.series(paper.points("figure1"), "queries", "online_seconds"))
        # "at q = 1.9M"; from the points that they give, it is a fifth more.
        self.assertAlmostEqual(time.crossover(crossover.per_query(checklist, 2_500_000)) / 1.9e6, 1.2, delta=0.1)
        seal = [(p["database_rows"], p["queries"], p["online_seconds"]) for p in paper.points("figure8", "sealpir")]
        time = crossover.CompletionTime(paper.series(paper.points("figure8"), "queries", "online_seconds"))
        self.assertTrue(15 <= time.crossover(crossover.per_query(seal, 10_000)) <= 32)  # "around 32"


class MachineTest(unittest.TestCase):
    def test_the_kernels_that_run_are_named(self):
        self.assertIn("AVX-512 IFMA", machine.describe_cpu({"flags": "avx2 avx512ifma"}))
        self.assertIn("AVX2", machine.describe_cpu({"model name": "X", "flags": "avx2 fma"}))
        self.assertIn("no AVX2", machine.describe_cpu({"flags": ""}))

    def test_all_facts_are_there(self):
        facts = machine.facts("/")
        self.assertEqual(set(facts), set(machine.FIELDS))
        self.assertEqual(facts["commit"], "unknown")
        self.assertTrue(all(facts.values()))

    def test_own_processor_time_is_not_other_load(self):
        start = os.times()
        own = lambda: sum(os.times()[:2])
        load = machine.OtherLoad(lambda: 1e9)
        load_own = machine.OtherLoad(own)
        while sum(os.times()[:2]) - sum(start[:2]) < 0.3:
            pass
        self.assertGreater(load.cores(), 0)  # our own loop counts as other load here
        self.assertLess(load_own.cores(), load.cores())

    def test_changed_trees_are_told_apart(self):
        with tempfile.TemporaryDirectory() as root:
            git = lambda *words: subprocess.run(
                ["git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True,
                capture_output=True)
            path = os.path.join(root, "file")

            def commit_of(content):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                return machine.commit(root)

            self.assertEqual(machine.commit(root), "unknown")
            git("init", "-q")
            commit_of("one")
            git("add", "file")
            git("commit", "-qm", "one")
            clean, two, three = commit_of("one"), commit_of("two"), commit_of("three")
            self.assertRegex(clean, "^[0-9a-f]{12}$")
            self.assertRegex(two, f"^{clean}[+][0-9a-f]{{8}}$")
            self.assertEqual(len({clean, two, three}), 3)
            self.assertEqual(commit_of("two"), two)
            os.mkdir(os.path.join(root, "src"))
            with open(os.path.join(root, "src", "new"), "w", encoding="utf-8") as file:
                file.write("new")
            added = commit_of("one")
            self.assertRegex(added, f"^{clean}[+][0-9a-f]{{8}}$")
            self.assertNotIn(added, (two, three))
            os.environ["SHOAL_BIN"] = "/elsewhere"
            self.addCleanup(os.environ.pop, "SHOAL_BIN")
            self.assertEqual(commit_of("one"), added + "+SHOAL_BIN")

    def test_what_a_deployment_holds_is_seen(self):
        # Files with a name, without one, and memory, in a process of the deployment; what lies elsewhere is bigger.
        code = ("import os, sys, tempfile\n"
                "one = open(os.path.join(sys.argv[1], 'file'), 'wb')\n"
                "two = tempfile.TemporaryFile(dir=sys.argv[1])\n"
                "for file in one, two: os.posix_fallocate(file.fileno(), 0, 32 << 20)\n"
                "kept = b'x' * (48 << 20)\nprint(flush=True)\ninput()")
        with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as elsewhere:
            os.posix_fallocate(elsewhere.fileno(), 0, 256 << 20)
            with machine.Use(directory) as use:
                with subprocess.Popen([sys.executable, "-c", code, directory], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True) as child:
                    child.stdout.readline()
                    self.assertIn(child.pid, machine.processes_of(directory))
                    self.assertNotIn(os.getpid(), machine.processes_of(directory))
                    until(lambda: use.disk_bytes >= 64 << 20 and use.memory_bytes >= 48 << 20)
                    child.communicate("\n")
            self.assertEqual(machine.processes_of(directory), [])
        self.assertTrue(64 << 20 <= use.disk_bytes < 80 << 20, use.disk_bytes)
        self.assertTrue(48 << 20 <= use.memory_bytes < 128 << 20, use.memory_bytes)

    def test_a_stop_is_noticed(self):
        # In a process of its own, which the test can stop as a whole.
        code = ("import time\nfrom lib import machine\n"
                "with machine.Pauses() as p:\n  print(flush=True)\n  time.sleep(0.5)\n  input()\nprint(p.longest_s)")
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as child:
            child.stdout.readline()
            child.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            child.send_signal(signal.SIGCONT)
            out, _ = child.communicate("\n", timeout=60)
        self.assertGreater(float(out), 1.0)


class PageTest(unittest.TestCase):
    def test_opens_without_a_network(self):
        with tempfile.TemporaryDirectory() as directory:
            figure = plots.Figure("f", "A & B", panels=2)
            plots.through_medians(figure.axes[0], [(1, 2), (1, 4), (10, 3)],
                                  **plots.ours(plots.BLUE, label="ours"))
            plots.logarithmic(figure.axes[0])
            plots.logarithmic(figure.axes[1])  # without data: must not fail
            png = figure.save(directory, "where")
            self.assertEqual(os.listdir(directory), ["f.png"])
            sheet = page.Page("A & B <script>")
            sheet.text("one\n\ntwo <b>")
            sheet.image(png, 'an "image"')
            sheet.table(("a", "b"), [(1, "<x>")])
            path = os.path.join(directory, "index.html")
            sheet.save(path)
            with open(path, encoding="utf-8") as file:
                text = file.read()
        self.assertIn("data:image/png;base64,", text)
        self.assertNotIn("<script>", text)
        self.assertIn("&lt;x&gt;", text)
        self.assertEqual(re.findall(r'(?:src|href)="(?!data:)', text), [])
        # On a laptop's screen of 1366 x 768 pixels a figure is seen as a whole: the browser takes some 130.
        pixels = int(re.search(r"img \{[^}]*max-height: (\d+)px", text).group(1))
        self.assertLessEqual(pixels, 768 - 130)
        ems = int(re.search(r"body \{ font: 15px[^}]*max-width: (\d+)em", text).group(1))
        self.assertLessEqual(15 * ems, 1366 - 20)

    def test_medians(self):
        self.assertEqual(plots.median([3, 1, 2]), 2)
        self.assertEqual(plots.median([4, 1]), 2.5)


class FigureTest(unittest.TestCase):
    """What makes a figure readable, measured on the figure itself."""

    @staticmethod
    def saved(figure, caption="where"):
        figure.lay_out(caption)
        return figure

    @staticmethod
    def names(figure):
        # Without its line to the panel.
        return [(annotation.get_text(), Text.get_window_extent(annotation), axis) for axis, annotation, _ in figure._names]

    def check(self, figure):
        """No wider than a page; no name covers another, or leaves the figure; logarithmic ticks are powers of ten."""
        width, height = figure.figure.get_size_inches()
        self.assertLessEqual(width, plots.Figure.PAGE)
        names = self.names(figure)
        for i, (text, box, axis) in enumerate(names):
            self.assertLessEqual(box.x1, width * figure.figure.dpi + 1, text)
            self.assertGreaterEqual(box.x0, axis.get_window_extent().x1, text)
            for other, other_box, _ in names[:i]:
                apart = (box.x1 <= other_box.x0 or other_box.x1 <= box.x0 or box.y1 <= other_box.y0 + 1
                         or other_box.y1 <= box.y0 + 1)
                self.assertTrue(apart, f"{figure.name}: {text!r} covers {other!r}")
        for axis in figure.axes:
            for which, scale in ((axis.xaxis, axis.get_xscale()), (axis.yaxis, axis.get_yscale())):
                if scale == "log" and not isinstance(which.get_major_locator(), FixedLocator):
                    low, high = which.get_view_interval()
                    ticks = [tick for tick in which.get_majorticklocs() if low <= tick <= high]
                    self.assertGreaterEqual(len(ticks), 1, figure.name)
                    for tick in ticks:
                        self.assertAlmostEqual(math.log10(tick), round(math.log10(tick)), msg=figure.name)
                    self.assertFalse([label for label in which.get_ticklabels(minor=True) if label.get_text()])

    def test_names_are_at_their_lines(self):
        figure = plots.Figure("f", "T", panels=2)
        for axis in figure.axes:
            for i in range(9):  # nine lines that end within a line's height
                axis.plot([1, 2], [i, 1 + i / 1000], **plots.ours(plots.BLUE, label=f"the line with the number {i}"))
        self.saved(figure)
        self.check(figure)
        self.assertEqual(len(figure._names), 18)
        self.assertEqual(figure.figure.legends, [])
        # In the order of the ends of their lines.
        left = [name for name in self.names(figure) if name[2] is figure.axes[0]]
        heights = [box.y0 for _, box, _ in left]
        self.assertEqual(heights, sorted(heights))

    def test_clouds_have_a_legend(self):
        figure = plots.Figure("f", "T")
        figure.axes[0].plot([1, 2], [2, 1], **{**plots.ours(plots.BLUE, label="points"), "linestyle": "none"})
        self.saved(figure)
        self.assertEqual(figure._names, [])
        self.assertEqual(len(figure.figure.legends), 1)

    def test_is_no_wider_than_a_page(self):
        for panels in (1, 2, 3, 10):
            self.check(self.saved(plots.Figure("f", "T", panels=panels, width=30)))

    def test_short_scales_reach_powers(self):
        figure = plots.Figure("f", "T")
        figure.axes[0].plot([3, 4], [20, 70])
        plots.logarithmic(figure.axes[0])
        self.saved(figure)
        self.check(figure)
        self.assertLessEqual(figure.axes[0].get_ylim()[0], 10)
        self.assertGreaterEqual(figure.axes[0].get_ylim()[1], 100)

    def test_repeats_have_bars_and_the_caption_says_so(self):
        for points, bars in (([(1, 2), (1, 4), (2, 3)], 1), ([(1, 2), (2, 3)], 0)):
            figure = plots.Figure("f", "T")
            plots.through_medians(figure.axes[0], points, **plots.ours(plots.BLUE, label="ours"))
            self.saved(figure)
            self.assertEqual(len(figure.axes[0].containers), bars)
            said = [text.get_text() for text in figure.figure.texts if "Bars:" in text.get_text()]
            self.assertEqual(len(said), bars)
            if bars:
                (low, high), = [segment[:, 1] for segment in figure.axes[0].containers[0][2][0].get_segments()]
                self.assertEqual((low, high), (2, 4))

    def test_the_sentence_stands_under_the_title(self):
        figure = plots.Figure("f", "The title")
        figure.conclude("What it shows.")
        self.saved(figure)
        texts = {text.get_text(): text.get_position()[1] for text in figure.figure.texts}
        self.assertLess(texts["What it shows."], texts["The title"])

    def test_exponents(self):
        self.assertAlmostEqual(plots.exponent([(1, 3), (10, 300), (100, 30000)]), 2)
        self.assertIsNone(plots.exponent([(5, 1), (5, 2)]))
        self.assertEqual(plots.medians([(2, 5), (1, 1), (1, 4), (1, 2)]), {1: 2, 2: 5})


class StudiesTest(unittest.TestCase):
    """Every study, on the results that are committed."""

    def test_all_figures_can_be_read_and_say_what_they_show(self):
        root = os.path.dirname(os.path.abspath(__file__))
        seen = 0
        for path in sorted(glob.glob(os.path.join(root, "*", "study.py"))):
            name = os.path.basename(os.path.dirname(path))
            spec = importlib.util.spec_from_file_location("study_" + name.replace("-", "_"), path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            study, = [thing() for thing in vars(module).values()
                      if isinstance(thing, type) and issubclass(thing, runner.Study) and thing.__module__ == module.__name__]
            folder = os.path.join(root, name, "results")
            rows = results.read(os.path.join(folder, "points.csv"))
            for figure, caption, *_ in study.figures(rows, folder):
                with self.subTest(figure=figure.name):
                    FigureTest.saved(figure, caption)
                    FigureTest.check(self, figure)
                    # A sentence with figures of these points, that one reads in one go.
                    self.assertRegex(figure.conclusion, r"^[A-Z0-9].*[0-9].*\.$")
                    self.assertLess(len(figure.conclusion), 330)
                    seen += 1
        self.assertGreaterEqual(seen, 20)

    names = staticmethod(FigureTest.names)  # for FigureTest.check

    def test_the_sentence_follows_the_points(self):
        root = os.path.dirname(os.path.abspath(__file__))
        spec = importlib.util.spec_from_file_location("study_parties", os.path.join(root, "parties", "study.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

        def said(power):
            rows = [{"parties": str(m), "keys_per_row": "16", "noise_s": "0", "offline_s": str(m ** power), "online_s": str(m)}
                    for m in (2, 4, 8)]
            return module.Parties._conclusion(rows)

        self.assertIn("as the power 2.0 of their number", said(2))
        self.assertIn("as the power 3.0 of their number", said(3))
        self.assertIn("From 2 to 8 parties", said(3))
        self.assertIn("nothing follows", module.Parties._conclusion(
            [{"parties": "2", "keys_per_row": "16", "noise_s": "0", "offline_s": "1", "online_s": "1"}]))


class FakeStudy(runner.ChainStudy):
    """Points without processes."""

    name = "fake"
    title = "A fake"
    about = "Nothing."

    def __init__(self):
        self.ran = []
        self.fail_at = None
        self.error = KeyboardInterrupt()

    def points(self, size):
        return [self.point(100, queries) for queries in (1, 10, 100)]

    def run(self, point, bench):
        if point["queries"] == self.fail_at:
            raise self.error
        self.ran.append((point["queries"], point["repetition"]))
        return {name: 1 for name in results.MEASURED}

    def cost(self, point, bench):
        return runner.Cost(seconds=10 if point["queries"] < 100 else 100,
                          memory_bytes=1 << 60 if point["queries"] == 10 else 0)

    def figures(self, rows, out):
        del out
        figure = plots.Figure("fake", self.title)
        plots.through_medians(figure.axes[0], runner.column(rows, "queries", "online_s"),
                              **plots.ours(plots.BLUE))
        figure.conclude(f"There are {len(rows)} points.")
        return [(figure, "A caption.")]


class CostTest(unittest.TestCase):
    def test_says_what_there_is_too_little_of(self):
        cost = runner.Cost(1, memory_bytes=2 << 30, disk_bytes=5 << 30)
        self.assertIsNone(cost.too_much(2 << 30, 5 << 30))
        self.assertIn("2 GiB of memory, 1 GiB", cost.too_much(1 << 30, 5 << 30))
        self.assertIn("5 GiB of disk, 4 GiB", cost.too_much(2 << 30, 4 << 30))


class MainTest(unittest.TestCase):
    def setUp(self):
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.out = os.path.join(self._directory.name, "out")
        self.study = FakeStudy()

    def main(self, *arguments):
        """(exit code, standard output, standard error)"""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = runner.main(self.study, [*arguments, "--out", self.out, "--work", self._directory.name])
        return code, out.getvalue(), err.getvalue()

    def test_goes_on_where_it_stopped(self):
        self.study.fail_at = 100
        code, _, err = self.main("--tiny")
        self.assertEqual(code, 130)
        self.assertIn("goes on from here", err)
        self.assertEqual(self.study.ran, [(1, 1), (10, 1)])
        self.study.fail_at = None
        code, out, err = self.main("--tiny")
        self.assertEqual(code, 0)
        self.assertIn("3 points, 2 finished before", err)
        self.assertEqual(self.study.ran, [(1, 1), (10, 1), (100, 1)])
        self.assertEqual(out.strip(), os.path.join(self.out, "index.html"))
        for name in ("points.csv", "fake.png", "index.html"):
            self.assertTrue(os.path.getsize(os.path.join(self.out, name)) > 0)
        self.assertEqual([name for name in os.listdir(self._directory.name) if name.startswith("study-")], [])

    def test_a_wrong_answer_ends_it_loudly(self):
        self.study.fail_at, self.study.error = 10, chain.WrongAnswers("9 of 10")
        code, _, err = self.main("--tiny")
        self.assertEqual(code, 3)
        self.assertIn("WRONG ANSWERS: 9 of 10", err)

    def test_a_failure_is_told(self):
        self.study.fail_at, self.study.error = 10, chain.Failed("no ports")
        code, _, err = self.main("--tiny")
        self.assertEqual((code, "no ports" in err), (1, True))

    def test_results_of_another_commit_need_a_decision(self):
        self.assertEqual(self.main("--tiny")[0], 0)
        path = os.path.join(self.out, "points.csv")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        commit = machine.facts(chain.ROOT)["commit"]
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(f",{commit},", ",0123456789ab,"))
        code, _, err = self.main("--tiny")
        self.assertEqual(code, 2)
        self.assertIn("--fresh", err)
        self.assertEqual(self.main("--tiny", "--fresh")[0], 0)
        self.assertEqual(len(self.study.ran), 6)

    def test_a_full_run_estimates_repeats_and_leaves_out_what_does_not_fit(self):
        os.makedirs(self.out)
        with open(os.path.join(self.out, "costs.textproto"), "w", encoding="utf-8"):
            pass  # else it would measure the machine
        code, _, err = self.main("--full", "--estimate")
        self.assertEqual((code, self.study.ran), (0, []))
        self.assertIn("about 2 min to go", err)
        self.assertFalse(os.path.exists(os.path.join(self.out, "points.csv")))
        code, _, err = self.main("--full")
        self.assertEqual(code, 0)
        # Three runs of the short point, none of the one that takes too much memory, one of the long
        # one.
        self.assertEqual(self.study.ran, [(1, 1), (1, 2), (1, 3), (100, 1)])
        self.assertIn("GiB of memory", err)
        with open(os.path.join(self.out, "index.html"), encoding="utf-8") as file:
            self.assertIn("Not run: 100 records, 16 a row, 10 queries", file.read())
        self.main("--full", "--all")
        self.assertEqual(self.study.ran[4:], [(10, 1), (10, 2), (10, 3)])

    def test_a_failed_point_does_not_end_the_others(self):
        self.study.fail_at, self.study.error = 10, chain.Failed("no ports")
        self.assertEqual(self.main("--tiny")[0], 1)
        self.assertEqual(self.study.ran, [(1, 1), (100, 1)])
        with open(os.path.join(self.out, "index.html"), encoding="utf-8") as file:
            self.assertIn("no ports", file.read())
        self.assertEqual(self.main("--draw")[0], 0)
        with open(os.path.join(self.out, "index.html"), encoding="utf-8") as file:
            self.assertIn("no ports", file.read())
        self.study.fail_at = None
        self.assertEqual(self.main("--tiny")[0], 0)
        self.assertEqual(self.study.ran[2:], [(10, 1)])

    def test_only_some_points(self):
        code, _, err = self.main("--tiny", "--only", "5 queries")
        self.assertEqual((code, self.study.ran), (2, []))
        self.assertIn("100 records, 16 a row, 10 queries", err)
        self.assertEqual(self.main("--tiny", "--only", " 10 queries")[0], 0)
        self.assertEqual(self.study.ran, [(10, 1)])

    def test_points_that_know_no_repetition_are_run_once_in_a_full_run(self):
        class Exact(FakeStudy):
            point_columns = tuple(column for column in results.POINT if column != "repetition")

            def points(self, size):
                return [{name: value for name, value in point.items() if name != "repetition"}
                        for point in super().points(size)]

            def run(self, point, bench):
                return super().run({**point, "repetition": 1}, bench)

        self.study = Exact()
        os.makedirs(self.out)
        with open(os.path.join(self.out, "costs.textproto"), "w", encoding="utf-8"):
            pass  # else it would measure the machine
        self.assertEqual(self.main("--full")[0], 0)
        self.assertEqual(self.study.ran, [(1, 1), (100, 1)])

    def test_draws_again_without_running(self):
        self.assertEqual(self.main("--draw")[0], 2)
        self.assertEqual(self.main("--tiny")[0], 0)
        os.remove(os.path.join(self.out, "fake.png"))
        self.assertEqual(self.main("--draw")[0], 0)
        self.assertTrue(os.path.exists(os.path.join(self.out, "fake.png")))
        self.assertEqual(len(self.study.ran), 3)


if __name__ == "__main__":
    # A warning of matplotlib's about a library that it uses.
    unittest.main(warnings="ignore")
