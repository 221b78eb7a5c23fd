"""The earlier benchmarks as tables: our accuracies beside the published ones."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from firehose.classic.experiment import Cell
from firehose.classic.methods import METHODS, in_order, in_words
from firehose.classic.run import Played
from firehose.data.pictures.tasks import BENCHMARKS
from firehose.report.tables import Beside, Table
from firehose.report.words import signed

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
FAR = 3.0  # points, and two published deviations: further away asks for an explanation

Found = Mapping[Cell, Played]


def games(found: Found, name: str, method: str) -> list[Played]:
    """A method's on a benchmark, one for each seed."""
    return [played for cell, played in found.items() if cell[:2] == (name, method)]


def methods(found: Found) -> list[str]:
    """Those who played, in the paper's order."""
    return in_order(cell.method for cell in found)


def finals(found: Found, benchmark: str, method: str) -> NDArray[np.float64]:
    """The accuracy in the end, in percent, for each seed."""
    return np.array([100 * played.final for played in games(found, benchmark, method)])


def table(found: Found, names: Sequence[str]) -> Table:
    """The paper's table, ours above the published numbers."""
    rows: list[list[str | Beside]] = []
    for method in methods(found):
        row: list[str | Beside] = [in_words(method)]
        for name in names:
            text = _plus(finals(found, name, method))
            if method in PUBLISHED.get(name, ()):
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


def differences(found: Found, names: Sequence[str]) -> Table:
    """Every cell against the published one."""
    compared = [name for name in names if name in PUBLISHED]
    rows = []
    for method in filter(METHODS.__contains__, methods(found)):
        row = [method]
        for name in compared:
            mean, deviation = PUBLISHED[name][method]
            change = finals(found, name, method).mean() - mean
            far = "far " if abs(change) > max(FAR, 2 * deviation) else ""
            row.append(f"{far}{signed(change)}")
        rows.append(row)
    title = f"Ours less published, points; far: over {FAR:.0f} and over two published deviations"
    return Table(["", *(BENCHMARKS[name].title for name in compared)], rows, title)


def forgetting(found: Found, names: Sequence[str]) -> Table:
    """How far each earlier task has fallen from its best since it was over."""
    return _per_benchmark(found, names, lambda played: played.forgetting, "Forgetting, points")


def forward(found: Found, names: Sequence[str]) -> Table:
    """How much better than before any training each task is just before it begins."""
    return _per_benchmark(found, names, lambda played: played.forward, "Forward transfer, points")


def after_tasks(found: Found, name: str) -> Table:
    """The mean accuracy over all tasks when each task is over."""
    title = f"{BENCHMARKS[name].title}: accuracy over all tasks after each task, %"
    return _per_task(found, name, lambda played: played.accuracy.mean(1)[played.ends], title)


def on_tasks(found: Found, name: str) -> Table:
    """The accuracy on each task in the end."""
    title = f"{BENCHMARKS[name].title}: accuracy on each task in the end, %"
    return _per_task(found, name, lambda played: played.accuracy[-1], title)


def _per_benchmark(
    found: Found, names: Sequence[str], measure: Callable[[Played], float], title: str
) -> Table:
    rows = []
    for method in methods(found):
        values = [
            np.array([100 * measure(played) for played in games(found, name, method)])
            for name in names
        ]
        rows.append(
            [in_words(method), *(_plus(each).replace("-", "\N{MINUS SIGN}") for each in values)]
        )
    return Table(["", *(BENCHMARKS[name].title for name in names)], rows, title)


def _per_task(
    found: Found, name: str, measure: Callable[[Played], NDArray[np.float64]], title: str
) -> Table:
    rows = []
    for method in methods(found):
        means = np.mean([measure(played) for played in games(found, name, method)], 0)
        rows.append([in_words(method), *(f"{100 * value:.1f}" for value in means)])
    heads = ["", *(f"task {task + 1}" for task in range(BENCHMARKS[name].tasks))]
    return Table(heads, rows, title)
