"""How the studies' figures look: one style, PNG and SVG, the machine in the caption."""

import os
import textwrap

import matplotlib

matplotlib.use("Agg")
# So that the same points give the same SVG, byte for byte.
matplotlib.rcParams["svg.hashsalt"] = "shoal"
matplotlib.rcParams.update({
    "font.size": 9,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.5,
})
import matplotlib.pyplot as plt  # noqa: E402 (after the backend is chosen)

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
    """Draws (x, y) with repetitions: a line through the medians of y, a bar from the least to the most."""
    groups = {}
    for x, y in points:
        groups.setdefault(x, []).append(y)
    if not groups:
        return
    xs = sorted(groups)
    middle = [median(groups[x]) for x in xs]
    axis.plot(xs, middle, **style)
    for x in xs:
        if len(groups[x]) > 1:
            axis.plot([x, x], [min(groups[x]), max(groups[x])], color=style["color"], linewidth=1)


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


class Figure:
    """One figure of panels side by side, a legend above and a caption below."""

    # Inches; what a page has between its margins, by 1.25.
    PAGE = 8.6

    def __init__(self, name, title, panels=1, width=None, height=4.0, across=None):
        """With `across`, rows of so many panels, each `height` high, as wide as a page."""
        self.name = name
        self.title = title
        columns = min(across or panels, panels)
        lines = -(-panels // columns)
        self._width = width or (self.PAGE if across else 5.6 if panels == 1 else 4.9 * panels)
        self.figure, axes = plt.subplots(lines, columns, figsize=(self._width, height * lines),
                                         layout="constrained", squeeze=False)
        self.axes = list(axes.flat[:panels])
        for axis in axes.flat[panels:]:
            axis.set_axis_off()
        self._labels = []

    def label(self, axis, x, y, text, color):
        """Words beside a point, in its colour, in place of a line of the legend. Words of a panel do not cover each other."""
        self._labels.append((axis, x, y, text, color))

    def _place_labels(self):
        self.figure.canvas.draw()
        apart = 8.5 * self.figure.dpi / 72  # of two lines' middles
        for axis in self.axes:
            mine = [(axis.transData.transform((x, y)), (x, y), text, color)
                    for of, x, y, text, color in self._labels if of is axis]
            taken = []  # (left, height) in pixels
            for (left, height), at, text, color in sorted(mine, key=lambda label: label[0][1]):
                # 4.2 pixels a letter at 7 points, times the resolution.
                reach = 4.2 * len(text) * self.figure.dpi / 72
                free = height
                for other, other_reach, other_height in taken:
                    if left < other + other_reach and other < left + reach:
                        free = max(free, other_height + apart)
                taken.append((left, reach, free))
                axis.annotate(text, at, xytext=(6, (free - height) * 72 / self.figure.dpi), textcoords="offset points",
                              va="center", color=color, fontsize=7, annotation_clip=False)

    def save(self, directory, caption):
        """Writes NAME.png and NAME.svg; returns the path of the PNG."""
        self._place_labels()
        handles = {}
        for axis in self.axes:
            for handle, label in zip(*axis.get_legend_handles_labels()):
                handles.setdefault(label, handle)
        if handles:
            # About sixteen letters fit an inch, and eight letters' width goes to the line and the
            # gap.
            longest = max(len(label) for label in handles) + 8
            columns = max(1, min(len(handles), int(self._width * 16 / longest)))
            # The title belongs to the legend, so that both are one block above the panels and never
            # cover data.
            self.figure.legend(handles.values(), handles.keys(), loc="outside upper left",
                               ncols=columns, title=self.title, alignment="left",
                               title_fontproperties={"size": 11, "weight": "bold"})
        else:
            self.figure.suptitle(textwrap.fill(self.title, int(self._width * 11)), fontsize=11, fontweight="bold",
                                 x=0.01, ha="left")
        lines = textwrap.fill(caption, int(self._width * 17.5))
        self.figure.supxlabel(lines, fontsize=7, color="#555555", x=0.01, ha="left")
        for suffix in ("png", "svg"):
            metadata = {"Date": None} if suffix == "svg" else {"Software": None}
            self.figure.savefig(os.path.join(directory, f"{self.name}.{suffix}"), dpi=130,
                                metadata=metadata)
        plt.close(self.figure)
        return os.path.join(directory, f"{self.name}.png")


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
