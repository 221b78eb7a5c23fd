"""The log of a game: a line for each round, and what each post cost."""

import json
import math
import time
from pathlib import Path
from typing import IO, Any, Self

from firehose.errors import FirehoseError
from firehose.game.round import Round


class Log:
    """The log of a game's rounds; when a run goes on, it is cut to what its checkpoint knows."""

    def __init__(self, folder: Path, rounds: int, posts: int, tensorboard: bool = False) -> None:
        self.lines = folder / "rounds.jsonl"
        self.paid = folder / "paid.f32"
        for path in (self.lines, self.paid):
            path.touch()
        kept = self.lines.read_bytes().splitlines(keepends=True)[:rounds]
        self.lines.write_bytes(b"".join(kept))
        with self.paid.open("r+b") as file:
            file.truncate(posts * 4)
        self.files: list[IO[bytes]] = [self.lines.open("ab"), self.paid.open("ab")]
        told = [json.loads(line) for line in kept]
        self.nats = sum(line["nats"] for line in told)
        self.words = sum(line["words"] for line in told)
        self.posts, self.begun = 0, time.monotonic()  # of this sitting
        self.board = _board(folder / "tensorboard", rounds) if tensorboard else None

    def add(self, number: int, played: Round) -> None:
        """Write one round down."""
        lines, paid = self.files
        line = json.dumps(describe(number, played))
        lines.write(line.encode() + b"\n")
        paid.write(played.paid.nats.astype("<f4").tobytes())
        self.nats += float(played.paid.nats.sum())
        self.words += int(played.paid.words.sum())
        self.posts += len(played.batch)
        if self.board:
            for name, value in self._curves(played).items():
                self.board.add_scalar(name, value, number)

    def _curves(self, played: Round) -> dict[str, float]:
        steps, paid = played.steps, played.paid
        return {
            "perplexity/of this round": math.exp(paid.nats.sum() / paid.words.sum()),
            "perplexity/so far": math.exp(self.nats / self.words),
            "steps/kept": steps.kept,
            "steps/gradient norm": steps.norm,
        }

    def note(self) -> str:
        """How things stand."""
        pace = self.posts / (time.monotonic() - self.begun)
        return f"perplexity {math.exp(self.nats / max(self.words, 1)):.1f} · {pace:,.0f} posts/s"

    def flush(self) -> None:
        """Hand what was written over to the operating system."""
        for file in self.files:
            file.flush()
        if self.board:
            self.board.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files:
            file.close()
        if self.board:
            self.board.close()


def _board(folder: Path, rounds: int) -> Any:
    """TensorBoard's writer; what an earlier sitting wrote after ``rounds`` is not shown."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise FirehoseError(
            "TensorBoard is not installed; `pip install tensorboard`, or play without it."
        ) from None
    return SummaryWriter(str(folder), purge_step=rounds + 1)


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """The rounds that a run wrote down."""
    lines = (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def describe(number: int, played: Round) -> dict[str, Any]:
    """A round as plain values."""
    steps = played.steps
    return {
        "round": number,
        "posts": len(played.batch),
        "words": int(played.paid.words.sum()),
        "nats": float(played.paid.nats.sum()),
        "released": played.released,
        "taken": steps.taken,
        "kept": steps.kept,
        "tokens": steps.tokens,
        "norm": steps.norm,
        "losses": list(steps.losses),
        "seconds": {phase: round(value, 6) for phase, value in played.seconds.items()},
    }


def spent(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """What all rounds together cost: gradient steps, tokens trained on, seconds by phase."""
    seconds: dict[str, float] = {}
    for line in rounds:
        for phase, value in line["seconds"].items():
            seconds[f"seconds to {phase}"] = seconds.get(f"seconds to {phase}", 0.0) + value
    taken, tokens = (sum(line[name] for line in rounds) for name in ("taken", "tokens"))
    return {"rounds": len(rounds), "gradient steps": taken, "tokens trained on": tokens} | seconds
