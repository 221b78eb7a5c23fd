"""The earlier benchmarks as a page: tables and figures, and how it was played."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure as Drawing

from firehose.classic.curves import by_task, through_time, transfer
from firehose.classic.methods import Protocol
from firehose.classic.showing import (
    PUBLISHED,
    Found,
    after_tasks,
    differences,
    forgetting,
    forward,
    on_tasks,
    table,
)
from firehose.data.pictures.tasks import BENCHMARKS
from firehose.machine import machine
from firehose.report.figures import render, save
from firehose.report.page import Block, Figure, Heading, Paragraph, page
from firehose.report.tables import Table
from firehose.report.tables import save as save_table
from firehose.report.words import many
from firehose.storage.files import write_whole


def write(found: Found, protocol: Protocol, out: Path, command: str) -> Path:
    """Write the page, the tables and the figures; each file whole. Returns the page."""
    names = list(dict.fromkeys(cell.benchmark for cell in found))
    seeds = len({cell.seed for cell in found})
    tables, figures = _tables(found, names), _figures(found, names)
    drawn = {
        name: Figure(render(figure, "svg").decode(), caption, caption)
        for name, (figure, caption) in figures.items()
    }
    blocks: list[Block] = [
        Paragraph(
            f"One pass over the tasks; {many(seeds, 'seed')}, on "
            f"{machine()['processor']}. The set-up is that of Aljundi et al. (2019); published "
            "numbers are those of the paper, mean ± deviation of 3 runs."
        ),
        Paragraph(set_up(protocol)),
        Heading("Accuracy"),
        tables["accuracy"],
        *([tables["differences"]] if "differences" in tables else []),
        Heading("Forgetting and forward transfer"),
        drawn["transfer"],
        tables["forgetting"],
        tables["forward"],
    ]
    for name in names:
        blocks += [Heading(BENCHMARKS[name].title), drawn[f"{name}-time"], tables[f"{name}-time"]]
        blocks += [drawn[f"{name}-tasks"]]
    for name, made in tables.items():
        save_table(made, out / "tables" / name)
    for name, (figure, _) in figures.items():
        save(figure, out / "figures" / name)
    summary = f"{many(len(found), 'game')} on {many(len(names), 'benchmark')}."
    content = page("The earlier benchmarks", summary, blocks, command)
    write_whole(out / "index.html", content.encode())
    return out / "index.html"


def _tables(found: Found, names: Sequence[str]) -> dict[str, Table]:
    """By the names of their files."""
    tables = {
        "accuracy": table(found, names),
        "forgetting": forgetting(found, names),
        "forward": forward(found, names),
    }
    if any(cell.method in PUBLISHED.get(cell.benchmark, ()) for cell in found):
        tables["differences"] = differences(found, names)
    for name in names:
        tables[f"{name}-time"] = after_tasks(found, name)
        tables[f"{name}-tasks"] = on_tasks(found, name)
    return tables


def _figures(found: Found, names: Sequence[str]) -> dict[str, tuple[Drawing, str]]:
    """By the names of their files, with what is written below them."""
    figures = {
        "transfer": (
            transfer(found, names),
            "Forgetting: how far each earlier task has fallen from its best since it was over. "
            "Forward transfer: "
            "how much better than before any training each task is just before it begins; who has "
            "never seen a task's classes names none of them, and falls below chance.",
        )
    }
    for name in names:
        title = BENCHMARKS[name].title
        figures[f"{name}-time"] = (
            through_time(found, name),
            f"{title}. Accuracy over all tasks as the stream goes on; a line where a task ends. "
            "Dashed: Online GD.",
        )
        figures[f"{name}-tasks"] = (
            by_task(found, name),
            f"{title}. Accuracy on each task in the end, %.",
        )
    return figures


def set_up(protocol: Protocol) -> str:
    """How it was played, in words."""
    pixels = {"share": "pixels / 255", "standard": "pixels with mean 0 and deviation 1"}
    weights = {"xavier": "Xavier's initial weights", "torch": "torch's own initial weights"}
    order = {"fixed": "", "random": ", in random order"}
    rate = "the benchmark's" if protocol.rate is None else f"{protocol.rate:g}"
    return (
        f"Tasks one after another{order[protocol.order]}. A perceptron with two hidden layers of "
        f"100; {pixels[protocol.pixels]}; "
        f"{weights[protocol.weights]}. Plain descent, its rate {rate}, iCaRL's "
        f"{protocol.icarl_pace:g} times that. Batches of {protocol.posts}; steps of "
        f"{protocol.step_size} pictures, half of them remembered with mixed replay, of "
        f"{protocol.posts} where nothing is replayed; up to {protocol.steps} steps a batch, "
        f"{protocol.online_steps} for GEM and for online only with Online GD. A memory of "
        f"{protocol.memory} pictures in all ({protocol.memory_strategy}), GEM's of "
        f"{protocol.gem_memory} of each task; {protocol.validation} held back by ConGraD "
        f"({protocol.validation_strategy}), "
        f"{'which may take no step' if protocol.zero else 'which takes a step at least'}."
    )
