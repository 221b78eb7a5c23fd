"""All methods on all benchmarks with all seeds; what is done stays done."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import firehose
from firehose.classic.methods import METHODS, Protocol, in_order, in_words, parse
from firehose.classic.run import Played, run
from firehose.config import refuse_unknown
from firehose.data.pictures.corpus import read_data_set
from firehose.data.pictures.files import DataSet
from firehose.data.pictures.tasks import BENCHMARKS, make_tasks
from firehose.errors import FirehoseError, Stopped
from firehose.game.round import Broken
from firehose.machine import cores, machine
from firehose.optim.adam import NotFinite
from firehose.plugins import checksum
from firehose.progress import track
from firehose.storage.files import write_whole


class Cell(NamedTuple):
    """One method on one benchmark with one seed."""

    benchmark: str
    method: str
    seed: int


def play_all(
    names: Sequence[str],
    data: str | Path,
    out: str | Path,
    seeds: int = 3,
    protocol: Protocol = Protocol(),  # noqa: B008 (it cannot be changed)
    jobs: int | None = None,
    methods: Sequence[str] = tuple(METHODS),
) -> dict[Cell, Played]:
    """Play what is not in ``out/runs`` yet, several games at a time."""
    chosen = in_order(methods)  # or say what is wrong with them
    for name in names:
        refuse_unknown("benchmark", name, list(BENCHMARKS))
        _data(BENCHMARKS[name].data, Path(data))  # or say what is wrong with it
    folder = Path(out) / "runs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FirehoseError(
            f"{folder} cannot be made: {error.strerror}; choose another --out."
        ) from None
    cells = [
        Cell(name, method, seed) for name in names for method in chosen for seed in range(seeds)
    ]
    files = {cell: folder / f"{_name(cell, protocol)}.json" for cell in cells}
    missing = [cell for cell in cells if not files[cell].is_file()]
    arguments = (Path(data), protocol)
    try:
        for cell, made in track(_games(missing, arguments, jobs), len(missing), "games"):
            write_whole(files[cell], (json.dumps(made) + "\n").encode())
    except KeyboardInterrupt:
        raise Stopped(
            "Stopped; games that are over are kept, and the same command goes on."
        ) from None
    return {cell: _read(files[cell]) for cell in cells}


def _games(
    cells: Sequence[Cell], arguments: tuple[Path, Protocol], jobs: int | None
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """The games, as they come to an end, in processes of a thread each."""
    workers = min(jobs or cores(), max(len(cells), 1))
    with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        futures: dict[Future[dict[str, Any]], Cell] = {
            pool.submit(_play, cell, *arguments): cell for cell in cells
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _play(cell: Cell, data: Path, protocol: Protocol) -> dict[str, Any]:
    benchmark = BENCHMARKS[cell.benchmark]
    tasks = make_tasks(benchmark, _data(benchmark.data, data), cell.seed, protocol.order)
    try:
        played = run(benchmark, tasks, cell.method, cell.seed, protocol)
    except (Broken, NotFinite):
        raise FirehoseError(
            f"{cell.method} on {cell.benchmark}, seed {cell.seed}: the model can no longer say "
            "what a picture costs; choose a smaller rate, as --set rate=0.01."
        ) from None
    return {
        **cell._asdict(),
        "version": firehose.__version__,
        "machine": machine(),
        "protocol": protocol.public(),
        "final": played.final,
        "forgetting": played.forgetting,
        "forward transfer": played.forward,
        **{
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in played._asdict().items()
        },
    }


@cache
def _data(name: str, folder: Path) -> DataSet:
    return read_data_set(name, folder)


def _name(cell: Cell, protocol: Protocol) -> str:
    """A file's name from all that can be chosen; the code of another version may find otherwise."""
    learner, _ = parse(cell.method)
    own = [checksum(learner, "learner")] if ":" in learner else []
    text = json.dumps([cell, BENCHMARKS[cell.benchmark], protocol.public(), *own])
    method = in_words(cell.method).lower().replace(" ", "-")
    key = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{cell.benchmark}-{method}-seed-{cell.seed}-{key}"


def _read(file: Path) -> Played:
    made = json.loads(file.read_text(encoding="utf-8"))
    seen, accuracy, ends = (np.array(made[name]) for name in ("seen", "accuracy", "ends"))
    return Played(seen, accuracy, ends, made["kept"], made["steps"], made["seconds"])
