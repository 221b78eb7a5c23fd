"""Run tasks in many processes with Daft, on this machine or on a Ray cluster.

Each stage of :mod:`firehose.data.prepare` is a function of one task. The tasks are the rows of a
Daft data frame, the function is applied to them in ``workers`` processes, and results come back
as they are ready. The function must depend only on its task, and write the same bytes in every
process, so that the result does not depend on the number of workers.
"""

import functools
import json
import logging
import os
import secrets
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from firehose.errors import FirehoseError
from firehose.faults import told

Task = dict[str, Any]  # values that JSON can hold
Work = Callable[[Task], Task]
Runner = Literal["native", "ray"]


def run(
    work: Work, tasks: Sequence[Task], workers: int, runner: Runner
) -> Iterator[tuple[int, Task]]:
    """Yield the number of every task and ``work(task)``, in any order.

    With 0 workers, or a single task, the work is done in this process.
    """
    if workers == 0 or len(tasks) <= 1:
        yield from enumerate(map(work, tasks))
        return
    daft = start(runner)

    @daft.cls(use_process=True, max_concurrency=min(workers, len(tasks)))
    class Worker:
        @daft.method.batch(return_dtype=daft.DataType.string(), batch_size=1)  # type: ignore[untyped-decorator]
        def do(self, rows: Any) -> list[str]:
            return [_answer(work, row) for row in rows.to_pylist()]

    frame = daft.from_pydict({"number": [*range(len(tasks))], "task": [*map(json.dumps, tasks)]})
    frame = frame.select("number", Worker().do(daft.col("task")).alias("answer"))
    done = 0
    for row in frame.iter_rows(results_buffer_size=None):
        done += 1
        answer = json.loads(row["answer"])
        if "error" in answer:
            raise FirehoseError(answer["error"])
        if "defect" in answer:
            raise RuntimeError(f"A worker failed:\n{answer['defect']}")
        yield row["number"], answer["result"]
    if done < len(tasks):  # after Ctrl-C, Daft ends as if there were no more rows
        raise KeyboardInterrupt


def _answer(work: Work, row: str) -> str:
    """The result of a task as JSON, or the message of its error, or the traceback of a defect."""
    try:
        return json.dumps({"result": work(json.loads(row))})
    except FirehoseError as error:
        return json.dumps({"error": str(error)})
    except Exception as error:
        if sentence := told(error):
            return json.dumps({"error": sentence})
        return json.dumps({"defect": traceback.format_exc()})


def refuse_unshared(folder: Path, runner: Runner) -> None:
    """Refuse a folder that a host of the Ray cluster does not have in common with this one."""
    if runner != "ray":
        return
    mark = folder / "seen by all"
    mark.write_text(token := secrets.token_hex(8), encoding="utf-8")
    blind = [host for host, found in seen_by(mark).items() if found != token]
    mark.unlink()
    if blind:
        raise FirehoseError(
            f"{folder.parent} is not the same folder on {', '.join(sorted(blind))} of the Ray "
            "cluster; choose an --out in a folder that all its hosts share."
        )


def seen_by(file: Path) -> dict[str, str | None]:
    """What each host of the Ray cluster reads in a file, by its address; None: it is not there."""
    start("ray")
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def look(path: str) -> str | None:
        return Path(path).read_text(encoding="utf-8") if Path(path).is_file() else None

    task, nodes = ray.remote(num_cpus=0)(look), ray.nodes()  # type: ignore[no-untyped-call]
    hosts = [node for node in nodes if node["Alive"]]
    there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in hosts]
    found = ray.get([task.options(scheduling_strategy=each).remote(str(file)) for each in there])
    return {node["NodeManagerAddress"]: text for node, text in zip(hosts, found, strict=True)}


@functools.cache
def start(runner: Runner) -> Any:
    """The module daft, set up for ``runner``, without progress bars and without telemetry."""
    os.environ["DAFT_PROGRESS_BAR"] = os.environ["DAFT_SHOW_QUERY_ID"] = "0"
    os.environ["DO_NOT_TRACK"] = "true"
    import daft

    if runner == "native":
        daft.set_runner_native()
        return daft
    try:
        import ray
    except ImportError:
        raise FirehoseError(
            "--runner ray needs Ray; install it with: pip install 'firehose-poll[ray]'."
        ) from None
    os.environ["RAY_USAGE_STATS_ENABLED"] = os.environ["RAY_TQDM"] = "0"
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    daft.set_runner_ray(noop_if_initialized=True)
    return daft
