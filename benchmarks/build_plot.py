"""Draws what `build.py` measured: three bars for each candidate, on a logarithmic scale of seconds."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from build_records import COLD_GOAL_S, Row

matplotlib.use("Agg")
from matplotlib import pyplot

_HEIGHT = 0.27


def plot(rows: Sequence[Row], file: Path) -> None:
    """Write the picture; candidates with the longest plain build on top."""
    ordered = sorted(rows, key=lambda row: (row.plain.seconds if row.plain else 0.0, row.name))
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.42 * len(ordered)), layout="constrained")
    arms = (
        ("load_inline of PyTorch", "#8c8c8c", [row.plain.seconds if row.plain else 0.0 for row in ordered]),
        ("Kernelwright, cold", "#1f77b4", [0.0 if row.cold.error else row.cold.whole_s for row in ordered]),
        ("Kernelwright, cached", "#2ca02c", [row.cached.whole_s if row.cached.cached else 0.0 for row in ordered]),
    )
    for number, (label, color, seconds) in enumerate(arms):
        places = [place + (1 - number) * _HEIGHT for place in range(len(ordered))]
        axes.barh(places, seconds, height=_HEIGHT, label=label, color=color)
    axes.axvline(COLD_GOAL_S, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(ordered)), [row.name for row in ordered], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("seconds until the extension can be called (dotted: the goal for a cold build)")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(y=0.01)
    axes.set_axisbelow(True)
    axes.grid(axis="x", which="both", linewidth=0.3)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)
