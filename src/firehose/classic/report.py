"""The earlier benchmarks as a page: our accuracies beside the published ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from firehose.classic.experiment import Cell
from firehose.classic.run import METHODS, Played, Protocol
from firehose.classic.tasks import BENCHMARKS
from firehose.figures import (
    AMBER,
    BLUE,
    GREEN,
    GRID,
    INK,
    PURPLE,
    VERMILION,
    above,
    blank,
    compact,
    render,
    save,
    styled,
    write_whole,
)
from firehose.machine import machine
from firehose.page import Block, Figure, Heading, Paragraph, many, page
from firehose.tables import Beside, Table
from firehose.tables import save as save_table

PUBLISHED = {  # mean and deviation of 3 runs
    name: dict(zip(METHODS, row, strict=True))
    for name, row in {
        "disjoint-cifar": [
            (19.1, 3.5), (29.2, 5.0), (16.0, 0.2), (29.3, 0.5),
            (27.6, 2.7), (15.6, 0.8), (31.0, 0.7), (31.3, 1.2),
        ],
        "disjoint-mnist": [
            (81.4, 1.8), (84.1, 1.2), (19.3, 0.1), (85.8, 1.4),
            (82.3, 0.3), (29.7, 4.2), (86.2, 0.8), (84.2, 0.7),
        ],
        "permuted-mnist": [
            (79.6, 1.3), (68.2, 2.7), (56.9, 3.2), (81.3, 0.6),
            (80.3, 1.2), (67.5, 0.8), (81.0, 0.8), (81.3, 0.2),
        ],
    }.items()
}  # fmt: skip
COLOURS = {
    "GEM": PURPLE,
    "iCaRL": AMBER,
    "online": VERMILION,
    "replay": GREEN,
    "mixed": BLUE,
}
DEEPEST = 0.6  # how much of its colour a cell with all pictures named rightly has
FAR = 3.0  # points, and two published deviations: further away asks for an explanation


def methods(found: Mapping[Cell, Played]) -> list[str]:
    """Those who played, in the paper's order."""
    played = {cell.method for cell in found}
    return [method for method in METHODS if method in played]


def finals(found: Mapping[Cell, Played], benchmark: str, method: str) -> NDArray[np.float64]:
    """The accuracy in the end, in percent, for each seed."""
    return np.array([100 * played.final for played in _games(found, benchmark, method)])


def table(found: Mapping[Cell, Played], names: Sequence[str]) -> Table:
    """The paper's table, ours above the published numbers."""
    rows: list[list[str | Beside]] = []
    for method in methods(found):
        row: list[str | Beside] = [method]
        for name in names:
            text = _plus(finals(found, name, method))
            if name in PUBLISHED:
                mean, deviation = PUBLISHED[name][method]
                row.append(Beside(text, f"{mean:.1f} ± {deviation:.1f}"))
            else:
                row.append(text)
        rows.append(row)
    heads = ["", *(BENCHMARKS[name].title for name in names)]
    return Table(heads, rows, "Accuracy over all tasks' test sets in the end, %")


def _plus(values: NDArray[np.float64]) -> str:
    deviation = f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else ""
    return f"{values.mean():.1f}{deviation}"


def differences(found: Mapping[Cell, Played], names: Sequence[str]) -> Table:
    """Every cell against the published one."""
    compared = [name for name in names if name in PUBLISHED]
    rows = []
    for method in methods(found):
        row = [method]
        for name in compared:
            mean, deviation = PUBLISHED[name][method]
            change = finals(found, name, method).mean() - mean
            far = "far " if abs(change) > max(FAR, 2 * deviation) else ""
            row.append(f"{far}{change:+.1f}".replace("-", "\N{MINUS SIGN}"))
        rows.append(row)
    title = f"Ours less published, points; far: over {FAR:.0f} and over two published deviations"
    return Table(["", *(BENCHMARKS[name].title for name in compared)], rows, title)


def transfers(found: Mapping[Cell, Played], names: Sequence[str]) -> Table:
    """Forgetting and forward transfer."""
    rows = []
    for method in methods(found):
        row = [method]
        for name in names:
            games = _games(found, name, method)
            forgotten = 100 * np.mean([played.forgetting for played in games])
            forward = 100 * np.mean([played.forward for played in games])
            row.append(f"{forgotten:.1f} / {forward:+.1f}".replace("-", "\N{MINUS SIGN}"))
        rows.append(row)
    heads = ["", *(BENCHMARKS[name].title for name in names)]
    return Table(heads, rows, "Forgetting / forward transfer, points")


@styled
def through_time(found: Mapping[Cell, Played], name: str) -> Drawing:
    """The mean accuracy over all tasks as the stream goes on."""
    figure = blank(3.2)
    axes = figure.add_subplot()
    games = {method: _games(found, name, method) for method in methods(found)}
    for method, played in games.items():
        mean = np.mean([each.accuracy.mean(1) for each in played], 0)
        colour, line = _look(method)
        axes.plot(played[0].seen, 100 * mean, color=colour, linestyle=line)
    for end in played[0].seen[played[0].ends][:-1]:
        axes.axvline(end, color=GRID, linewidth=0.8, zorder=0)
    axes.set_ylabel("accuracy over all tasks, %")
    axes.set_xlabel("pictures seen")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.grid(axis="y")
    looks = [_look(method) for method in games]
    handles = [Line2D([], [], color=colour, linestyle=line) for colour, line in looks]  # type: ignore[arg-type]
    above(axes, list(games), handles, INK, columns=4, length=1.5)
    return figure


@styled
def by_task(found: Mapping[Cell, Played], name: str) -> Drawing:
    """The accuracy on each task in the end."""
    played = methods(found)
    figure = blank(0.9 + 0.26 * len(played))
    axes = figure.add_subplot()
    rows = np.array(
        [
            np.mean([game.accuracy[-1] for game in _games(found, name, method)], 0)
            for method in played
        ]
    )
    shades = np.empty((*rows.shape, 4))
    shades[..., :3], shades[..., 3] = to_rgb(BLUE), DEEPEST * rows  # a page may be dark behind it
    axes.imshow(shades, aspect="auto", interpolation="nearest")
    for (row, task), value in np.ndenumerate(rows):
        axes.text(task, row, f"{100 * value:.0f}", ha="center", va="center", color=INK)
    axes.set_yticks(range(len(played)), played)
    axes.set_xticks(range(rows.shape[1]), [str(task + 1) for task in range(rows.shape[1])])
    axes.set_xlabel("task, in the order of the stream")
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    return figure


def _games(found: Mapping[Cell, Played], name: str, method: str) -> list[Played]:
    return [played for cell, played in found.items() if cell[:2] == (name, method)]


def _look(method: str) -> tuple[str, object]:
    """The colour is the learner's; Online GD is dashed, as in the reports of other games."""
    first, _, learner = method.partition(" ")
    return COLOURS[learner or first], (0, (3, 1.6)) if first == "GD" else "-"


def write(found: Mapping[Cell, Played], protocol: Protocol, out: Path, command: str) -> Path:
    """Write the page, the tables and the figures; each file whole. Returns the page."""
    names = list(dict.fromkeys(cell.benchmark for cell in found))
    seeds = len({cell.seed for cell in found})
    here = machine()
    made = {"accuracy": table(found, names), "transfer": transfers(found, names)}
    if any(name in PUBLISHED for name in names):
        made["differences"] = differences(found, names)
    blocks: list[Block] = [
        Paragraph(
            f"One pass over the tasks, one after another, with a perceptron of two hidden layers "
            f"of 100; {many(seeds, 'seed')}, on {here['processor']}. The set-up is that of Aljundi "
            "et al. (2019); published numbers are those of the paper, mean ± deviation of 3 runs."
        ),
        Paragraph(
            f"Batches of {protocol.posts}; steps of {protocol.step_size} pictures, half of them "
            f"remembered with mixed replay; up to {protocol.steps} steps a batch, one for GEM and "
            f"for online only with Online GD; a memory of {protocol.memory} pictures in all "
            f"({protocol.memory_strategy}), {protocol.validation} held back by ConGraD "
            f"({protocol.validation_strategy})."
        ),
        Heading("Accuracy"),
        made["accuracy"],
        *([made["differences"]] if "differences" in made else []),
        Heading("Forgetting and forward transfer"),
        Paragraph(
            "Forgetting: how far each earlier task has fallen from its best. Forward transfer: how "
            "much better than before any training each task is just before it begins."
        ),
        made["transfer"],
    ]
    for name in names:
        title = BENCHMARKS[name].title
        blocks.append(Heading(title))
        for kind, draw, caption in (
            ("time", through_time, "Accuracy over all tasks as the stream goes on; a line where a "
             "task ends. Dashed: Online GD."),
            ("tasks", by_task, "Accuracy on each task in the end, %."),
        ):  # fmt: skip
            figure = draw(found, name)
            blocks.append(Figure(render(figure, "svg").decode(), f"{title}. {caption}", caption))
            save(figure, out / "figures" / f"{name}-{kind}")
    for name, each in made.items():
        save_table(each, out / "tables" / name)
    summary = f"{many(len(found), 'game')} on {many(len(names), 'benchmark')}."
    content = page("The earlier benchmarks", summary, blocks, command)
    write_whole(out / "index.html", content.encode())
    return out / "index.html"
