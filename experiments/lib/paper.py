"""What the papers' authors measured (experiments/reference)."""

import csv
import os

_REFERENCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reference")


def _read(name):
    with open(os.path.join(_REFERENCE, name), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def points(experiment, system="dp-pir", **where):
    """The points of a figure or table as dictionaries: numbers, None where nothing was measured.

    `where` narrows a column to one value, for example database_rows=100000.
    """
    found = []
    for line in _read("paper_measurements.csv"):
        if line["experiment"] != experiment or line["system"] != system:
            continue
        row = {name: float(value) if value else None
               for name, value in line.items() if name not in ("experiment", "system")}
        if all(row[column] == value for column, value in where.items()):
            found.append(row)
    if not found:
        raise KeyError(f"no points of {system} in {experiment}")
    return found


def series(rows, x, y):
    """(x, y) of the rows that have both, in the order of x."""
    return sorted((row[x], row[y]) for row in rows if row[x] is not None and row[y] is not None)


def table3():
    """Lines of table 3: delta, epsilon (the one that the numbers belong to), bound."""
    return [{name: float(value) for name, value in line.items()}
            for line in _read("paper_table3.csv")]


def _lines(name, text, what, source, where):
    """Lines of a file of tables: the columns `text` as text, numbers, None where nothing is stated."""
    found = []
    for line in _read(name):
        row = {column: value if column in text else (float(value) if value else None)
               for column, value in line.items()}
        if row["source"] == source and all(row[column] == value for column, value in where.items()):
            found.append(row)
    if not found:
        raise KeyError(f"no lines of {what}'s {source} with {where}")
    return found


def simplepir(source, **where):
    """Lines of SimplePIR's tables."""
    return _lines("simplepir.csv", ("source", "system"), "SimplePIR", source, where)


def piano(source, **where):
    """Lines of Piano's tables 1 and 2."""
    return _lines("piano.csv", ("source", "system"), "Piano", source, where)


def treepir(source, **where):
    """Lines of TreePIR's figures 7 to 9."""
    return _lines("treepir.csv", ("source", "system"), "TreePIR", source, where)


def smallpir(source, **where):
    """Lines of Small PIR's tables 1 to 6."""
    return _lines("smallpir.csv", ("source", "system", "configuration"), "Small PIR", source, where)
