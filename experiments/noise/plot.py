"""Draws distributions.{png,svg} and delta.{png,svg} from the CSV on standard input."""

import csv
import os
import sys

import matplotlib

matplotlib.use("Agg")
# The same input draws the same SVG, byte for byte.
matplotlib.rcParams["svg.hashsalt"] = "shoal"
import matplotlib.pyplot as plt

curves = {}
for row in csv.DictReader(sys.stdin):
    key = row["kind"], row["figure"], row["name"]
    curves.setdefault(key, []).append((float(row["x"]), float(row["y"])))

titles = {"one": "one changed query", "hundred": "a hundred changed queries"}
for kind, file, x_label, y_label in (
    ("probability", "distributions", "noise queries for a row", "probability"),
    ("delta", "delta", "epsilon", "exact delta"),
):
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for axis, which in zip(axes, titles):
        for (k, f, name), points in curves.items():
            if (k, f) == (kind, which):
                axis.plot(*zip(*points), label=name)
        axis.set(title=titles[which], xlabel=x_label, ylabel=y_label)
        if kind == "delta":
            axis.set_yscale("log")
            axis.axhline(1e-6, color="gray", linewidth=0.7)
            axis.axvline(0.1, color="gray", linewidth=0.7)
        axis.legend(fontsize=8)
    figure.tight_layout()
    for suffix in ("png", "svg"):
        metadata = {"Date": None} if suffix == "svg" else {"Software": None}
        figure.savefig(os.path.join(os.path.dirname(__file__), f"{file}.{suffix}"), dpi=110, metadata=metadata)
