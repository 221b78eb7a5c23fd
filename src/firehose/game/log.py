"""The log of a game: a line for each round, and what each post cost."""

import json
import math
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firehose.errors import FirehoseError
from firehose.game.round import Round
from firehose.storage.files import write_whole
from firehose.storage.logs import EMPTY, AppendLog
from firehose.storage.seals import File

LINES, PAID = "rounds.jsonl", "paid.f32"


class Log:
    """The log of a game's rounds; when a run goes on, it is cut to what its checkpoint counts on.

    ``seals`` tell what that is; without, the log is a new one.
    """

    def __init__(self, folder: Path, seals: Mapping[str, File], tensorboard: bool = False) -> None:
        self.lines = AppendLog(folder / LINES, seals.get(LINES, EMPTY))
        self.paid = AppendLog(folder / PAID, seals.get(PAID, EMPTY))
        told = read_rounds(folder)
        self.nats = sum(line["nats"] for line in told)
        self.words = sum(line["words"] for line in told)
        self.posts, self.begun = 0, time.monotonic()  # since this process began
        self.board = _board(folder / "tensorboard", len(told)) if tensorboard else None

    def add(self, number: int, played: Round) -> None:
        """Write down one round."""
        line: dict[str, Any] = {
            "round": number,
            "posts": len(played.batch),
            "words": int(played.paid.words.sum()),
            "nats": float(played.paid.nats.sum()),
            "released": played.released,
            **played.steps._asdict(),  # taken, kept, tokens, norm, losses
            "seconds": {phase: round(value, 6) for phase, value in played.seconds.items()},
        }
        self.lines.append(json.dumps(line).encode() + b"\n")
        self.paid.append(played.paid.nats.astype("<f4").tobytes())
        self.nats += line["nats"]
        self.words += line["words"]
        self.posts += line["posts"]
        if self.board:
            curves = {
                "perplexity/of this round": perplexity(line["nats"], line["words"]),
                "perplexity/so far": perplexity(self.nats, self.words),
                "steps/kept": line["kept"],
                "steps/gradient norm": line["norm"],
            }
            for name, value in curves.items():
                self.board.add_scalar(name, value, number)

    def note(self) -> str:
        """The perplexity so far and the posts per second, for the progress bar."""
        pace = self.posts / (time.monotonic() - self.begun)
        return f"perplexity {perplexity(self.nats, self.words):.1f} · {pace:,.0f} posts/s"

    def flush(self) -> dict[str, File]:
        """Bring what was written to disk; returns the seals of both files."""
        if self.board:
            self.board.flush()
        return {LINES: self.lines.seal(), PAID: self.paid.seal()}


def perplexity(nats: float, words: int) -> float:
    """The perplexity per word; infinite where no float can hold it, as in a game that diverges."""
    try:
        return math.exp(nats / max(words, 1))
    except OverflowError:
        return math.inf


def _board(folder: Path, rounds: int) -> Any:
    """TensorBoard's writer; rounds after ``rounds`` that were written before are not shown."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise FirehoseError(
            "TensorBoard is not installed; `pip install tensorboard`, or play without it."
        ) from None
    return SummaryWriter(str(folder), purge_step=rounds + 1)


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """The rounds in the log of a run."""
    lines = (folder / LINES).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def summary(folder: Path) -> dict[str, Any]:
    """All rounds of a run together: rounds by the steps they kept, and what was computed."""
    rounds = read_rounds(folder)
    seconds = Counter[str]()
    for line in rounds:
        seconds.update({f"seconds to {phase}": value for phase, value in line["seconds"].items()})
    taken, tokens = (sum(line[name] for line in rounds) for name in ("taken", "tokens"))
    compute = {"rounds": len(rounds), "gradient steps": taken, "tokens trained on": tokens}
    kept = np.bincount([line["kept"] for line in rounds]).tolist()
    return {"kept": kept, "compute": compute | dict(seconds)}


def write_table(folder: Path) -> None:
    """Write the rounds of a run as ``rounds.parquet``, with a column for the seconds of a phase."""
    rounds = pa.Table.from_pylist(read_rounds(folder)).flatten()
    names = [name.replace(".", "_") for name in rounds.column_names]  # seconds_pay
    buffer = pa.BufferOutputStream()
    pq.write_table(rounds.rename_columns(names), buffer)
    write_whole(folder / "rounds.parquet", buffer.getvalue().to_pybytes())
