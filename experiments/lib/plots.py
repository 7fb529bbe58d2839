"""How the studies' figures look: one style, a sentence that says what they show, the machine in the caption."""

import math
import os
import textwrap

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams.update({
    "font.size": 9,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.5,
})
import matplotlib.pyplot as plt  # noqa: E402 (after the backend is chosen)
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import FixedLocator, LogFormatterSciNotation, LogLocator, NullFormatter  # noqa: E402

# Shoal's measurements have filled markers and solid lines, the authors' hollow markers and dashed
# lines, and what is computed from other measurements crosses and dotted lines.
_OURS = {"linestyle": "-"}
_THEIRS = {"linestyle": "--", "markerfacecolor": "white"}
BLUE, GREEN, PURPLE, RED = "#1764ab", "#2a9d5c", "#7b3fa0", "#c0392b"
ORANGE, BROWN, GRAY, BLACK = "#d9730d", "#8c564b", "#6b6b6b", "#222222"
TEAL, PINK = "#138d90", "#d6569a"


def ours(color, marker="o", label=None):
    """Arguments of `plot` for what Shoal measured."""
    return {**_OURS, "color": color, "marker": marker, "label": label}


def theirs(color=ORANGE, marker="s", label=None):
    """Arguments of `plot` for what the paper's authors measured."""
    return {**_THEIRS, "color": color, "marker": marker, "label": label}


def modelled(color, marker="x", label=None):
    """Arguments of `plot` for what a model says."""
    return {"linestyle": ":", "color": color, "marker": {"o": "x", "^": "+"}.get(marker, marker), "label": label}


def through_medians(axis, points, **style):
    """Draws (x, y) with repetitions: a line through the medians of y, and a bar from the least to the most where there are several."""
    groups = {}
    for x, y in points:
        groups.setdefault(x, []).append(y)
    if not groups:
        return
    xs = sorted(groups)
    middle = [median(groups[x]) for x in xs]
    axis.plot(xs, middle, **style)
    again = [(x, m) for x, m in zip(xs, middle) if len(groups[x]) > 1]
    if again:
        bars = axis.errorbar(*zip(*again), yerr=[[m - min(groups[x]) for x, m in again],
                                                 [max(groups[x]) - m for x, m in again]],
                             linestyle="none", color=style["color"], elinewidth=1, capsize=2.5)
        bars.set_label("_bars")


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def medians(points):
    """{x: median of its y}, in the order of x."""
    groups = {}
    for x, y in points:
        groups.setdefault(x, []).append(y)
    return {x: median(groups[x]) for x in sorted(groups)}


def exponent(points):
    """The k of y ~ x^k through points with positive coordinates: the slope of a straight line on logarithmic axes (least squares).
    None for fewer than two different x."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    if len({x for x, _ in logs}) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


# Of text in a figure: points, letters that fit an inch, and inches of a line.
_TITLE = (11, 10.5, 0.19)
_SENTENCE = (9, 14.5, 0.16)
_CAPTION = (7, 17.4, 0.125)
_LABEL_POINTS = 7
# Letters in a line of a label, with one panel in a row and with more.
_LABEL_LETTERS = {1: 34, 2: 18, 3: 15}


class Figure:
    """One figure: a title, a sentence with what it shows, panels, and a caption. Lines bear their names at their ends."""

    # Inches; what a page has between its margins, by 1.25. No figure is wider.
    PAGE = 8.6

    def __init__(self, name, title, panels=1, width=None, height=4.0, across=2):
        """Rows of at most `across` panels, each `height` high; several panels take the width of a page."""
        self.name = name
        self.title = title
        self.conclusion = ""
        self.columns = min(across, panels)
        lines = -(-panels // self.columns)
        self._width = min(width or (self.PAGE if self.columns > 1 else 7.2), self.PAGE)
        self._panels_height = height * lines
        self.figure, axes = plt.subplots(lines, self.columns, figsize=(self._width, self._panels_height),
                                         layout="constrained", squeeze=False)
        self.axes = list(axes.flat[:panels])
        for axis in axes.flat[panels:]:
            axis.set_axis_off()
        self._names = []  # (axis, annotation, point)
        self._words = []  # above the panels: (text, points, weight, inches from the top)

    def conclude(self, sentence):
        """What the points show, computed from them; stands under the title, and at the end of a run."""
        self.conclusion = sentence

    def _name_lines(self, axis):
        """Puts the name of every line of the panel beside its last point, outside of the panel. Returns what has no line."""
        rest, named = {}, {}
        for handle, label in zip(*axis.get_legend_handles_labels()):
            points = [] if not isinstance(handle, Line2D) else [
                (float(x), float(y)) for x, y in zip(handle.get_xdata(), handle.get_ydata())]
            if points and handle.get_transform() != axis.transData:  # a line across the panel, at one height
                points = [(axis.get_xlim()[1], points[0][1])]
            if not points or handle.get_linestyle() == "None" and len(points) > 1:
                rest.setdefault(label, handle)
                continue
            last = max(points, key=lambda point: point[0])
            if label not in named or last[0] > named[label][0][0]:
                named[label] = (last, handle)
        letters = _LABEL_LETTERS.get(self.columns, _LABEL_LETTERS[3])
        for label, (point, handle) in named.items():
            annotation = axis.annotate(
                textwrap.fill(label, letters), point, xytext=(1.04, 0.5), textcoords="axes fraction", va="center", ha="left",
                color=handle.get_color(), fontsize=_LABEL_POINTS, annotation_clip=False, linespacing=1.0,
                arrowprops={"arrowstyle": "-", "color": handle.get_color(), "linewidth": 0.5, "alpha": 0.6,
                            "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)})
            self._names.append((axis, annotation, point))
        return rest

    def _place_names(self):
        """Moves the names of each panel up and down until none covers another, each as near to its line as that allows."""
        self.figure.draw_without_rendering()
        for axis in self.axes:
            box = axis.get_window_extent()
            mine = []
            for of, annotation, point in self._names:
                if of is axis:
                    height = self._text_height(annotation)
                    at = min(max(axis.transData.transform(point)[1], box.y0), box.y1)
                    mine.append([at, height, annotation])
            if not mine:
                continue
            mine.sort(key=lambda name: name[0])
            gap = 0.02 * self.figure.dpi
            # From below, each above the one before; then from above, so that none is over the panel.
            for before, name in zip(mine, mine[1:]):
                name[0] = max(name[0], before[0] + (before[1] + name[1]) / 2 + gap)
            ceiling = box.y1
            for name in reversed(mine):
                name[0] = min(name[0], ceiling - name[1] / 2)
                ceiling = name[0] - name[1] / 2 - gap
            for at, _, annotation in mine:
                annotation.set_position((1.04, (at - box.y0) / box.height))

    def _text_height(self, annotation):
        return (annotation.get_text().count("\n") + 1) * _LABEL_POINTS * 1.15 * self.figure.dpi / 72

    def lay_out(self, caption):
        """Puts everything that is not in a panel to its place; to be called once, by `save`."""
        rest = {}
        for axis in self.axes:
            _powers(axis)
            for label, handle in self._name_lines(axis).items():
                rest.setdefault(label, handle)
            if axis.containers and any(len(bars) == 3 and bars.get_label() == "_bars" for bars in axis.containers):
                if "Bars:" not in caption:
                    caption = (caption + " Bars: the least and the most of repeated measurements.").strip()
        above, below = 0.06, 0.06
        for text, (points, letters, line), weight in ((self.title, _TITLE, "bold"), (self.conclusion, _SENTENCE, "normal")):
            if text:
                filled = textwrap.fill(text, int(self._width * letters))
                self._words.append((filled, points, weight, above))
                above += line * (filled.count("\n") + 1) + 0.03
        filled = textwrap.fill(caption, int(self._width * _CAPTION[1]))
        below += _CAPTION[2] * (filled.count("\n") + 1)
        if rest:
            # What has no line of its own: clouds of points.
            above += 0.24
        height = self._panels_height + above + below
        self.figure.set_size_inches(self._width, height)
        for text, points, weight, at in self._words:
            self.figure.text(0.01, 1 - at / height, text, fontsize=points, fontweight=weight, va="top", ha="left",
                             linespacing=1.15)
        self.figure.text(0.01, 0.04 / height, filled, fontsize=_CAPTION[0], color="#555555", va="bottom", ha="left",
                         linespacing=1.15)
        if rest:
            self.figure.legend(rest.values(), rest.keys(), loc="upper left", bbox_to_anchor=(0.0, 1 - (above - 0.24) / height),
                               ncols=len(rest))
        self.figure.get_layout_engine().set(rect=(0, below / height, 1, 1 - (above + below) / height))
        self._place_names()
        self._place_names()  # once more: the first draw has moved the panels

    def save(self, directory, caption):
        """Writes NAME.png, which the same points give byte for byte; returns its path."""
        self.lay_out(caption)
        path = os.path.join(directory, f"{self.name}.png")
        self.figure.savefig(path, dpi=130, metadata={"Software": None})
        plt.close(self.figure)
        return path


def _powers(axis):
    """On logarithmic scales, ticks at powers of ten alone, of which at least two are within the panel. Ticks that a study has set
    itself stay."""
    for scale, which in ((axis.get_xscale(), axis.xaxis), (axis.get_yscale(), axis.yaxis)):
        if scale != "log" or isinstance(which.get_major_locator(), FixedLocator):
            continue
        low, high = which.get_view_interval()
        if low <= 0 or high <= low:
            continue
        if math.floor(math.log10(high)) - math.ceil(math.log10(low)) < 1:
            low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
            (axis.set_xlim if which is axis.xaxis else axis.set_ylim)(low, high)
        which.set_major_locator(LogLocator(base=10, numticks=9))
        which.set_major_formatter(LogFormatterSciNotation(base=10))
        which.set_minor_locator(LogLocator(base=10, subs=range(2, 10), numticks=99))
        which.set_minor_formatter(NullFormatter())


def logarithmic(axis, x=True, y=True):
    """Logarithmic axes; an axis without data stays as it is."""
    if not axis.has_data():
        return
    if x:
        axis.set_xscale("log")
    if y:
        axis.set_yscale("log")


def machine_caption(rows):
    """Which machine and commit lines of results are from, and how much others disturbed."""
    if not rows:
        return "Nothing measured."
    distinct = {name: sorted({row[name] for row in rows}) for name in
                ("cpu", "cores", "memory_gib", "kernel", "commit")}
    parts = [", ".join(distinct["cpu"]), " and ".join(distinct["cores"]) + " cores",
             " and ".join(distinct["memory_gib"]) + " GiB", "Linux " + ", ".join(distinct["kernel"]),
             "commit " + ", ".join(distinct["commit"])]
    dates = sorted(row["date"][:10] for row in rows)
    parts.append(dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}")
    text = "Shoal: " + "; ".join(parts) + "."
    others = [float(row["other_load_cores"]) for row in rows if row.get("other_load_cores")]
    if others and max(others) > 0.1:
        text += (f" Other work kept {median(others):.1f} cores busy meanwhile (median; at most "
                 f"{max(others):.1f}): times are upper bounds.")
    return text
