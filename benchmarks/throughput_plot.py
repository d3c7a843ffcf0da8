"""Draws the traces of the throughput benchmark: a row for each builder and lane, a bar for each stage."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Patch

from tools.jobs import Span

_COLOURS = {"build": "#4477aa", "verify": "#ccbb44", "sanitizer": "#aa3377", "benchmark": "#228833"}
_ROW_INCHES = 0.16


def draw(traces: Mapping[str, tuple[float, float, Sequence[Span]]], folder: Path) -> None:
    """Draw traces, given as start, seconds and spans, by name."""
    rows = [sorted({span.where for span in spans}, key=_order) for _, _, spans in traces.values()]
    heights = [max(4, len(names)) for names in rows]
    figure, panels = plt.subplots(
        len(traces),
        sharex=True,
        squeeze=False,
        height_ratios=heights,
        figsize=(12, 1.5 + _ROW_INCHES * sum(heights)),
        layout="constrained",
    )
    for panel, names, (name, (started_s, seconds, spans)) in zip(panels[:, 0], rows, traces.items(), strict=True):
        for span in spans:
            width = span.ended_s - span.started_s
            panel.barh(
                names.index(span.where),
                width,
                0.9,
                span.started_s - started_s,
                color=_COLOURS[span.stage],
                edgecolor="white",
                linewidth=0.4,
            )
        panel.set_yticks(range(len(names)), names, fontsize=6)
        panel.invert_yaxis()
        panel.set_title(f"{name}: {seconds:.0f} s", fontsize=9, loc="left")
    panels[-1, 0].set_xlabel("seconds")
    figure.legend(
        handles=[Patch(color=colour, label=stage) for stage, colour in _COLOURS.items()],
        ncols=4,
        loc="outside lower right",
    )
    figure.savefig(folder / "throughput.png", dpi=150)


def _order(where: str) -> tuple[bool, str, int]:
    """Lanes first, then builders by their numbers."""
    name, _, number = where.rpartition(":")
    return name.endswith("builder"), name, int(number)
