"""What several tests share."""

import atexit
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

# What tests trust and verify is remembered in no home but their own; fonts are looked for once.
os.environ["MPLCONFIGDIR"] = os.environ.get("MPLCONFIGDIR") or str(
    Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "matplotlib"
)
os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="firehose-")
# Two workers on two cores, each with a thread: more would wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"
# Some virtual machines promise instructions for tiles of bfloat16, and die of them.
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
# Run in the background, tests would hand on to the commands they start that Ctrl-C is ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from firehose.data.corpus import Corpus
from firehose.data.plan import make_plan
from firehose.data.post import Post
from firehose.data.prepare import Execution, prepare

atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

Write = Callable[[Path, Sequence[Post]], Path]
INLINE = Execution(workers=0)


def write_posts(path: Path, posts: Sequence[Post]) -> Path:
    """Posts as JSONL, one object a line."""
    lines = [json.dumps(post._asdict()) + "\n" for post in posts]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def simple_posts(users: int = 3, posts: int = 24) -> list[Post]:
    """A small ordinary stream: every user posts every hour, in English."""
    words = "the quick brown fox jumps over a lazy dog while nobody in the house is looking"
    return [
        Post(
            user=f"user{user}",
            text=" ".join(words.split()[(number + k * (user + 1)) % 16] for k in range(6)),
            time=1_400_000_000_000 + number * 3_600_000 + user,
            id=f"{user}-{number}",
            language="en",
        )
        for number in range(posts)
        for user in range(users)
    ]


def prepared(folder: Path, posts: Sequence[Post], **tables: Any) -> Corpus:
    """A corpus of these posts, made in this process."""
    plan = make_plan([write_posts(folder / "posts.jsonl", posts)], **tables)
    return prepare(plan, folder / "corpus", INLINE).corpora[0]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by name."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Three users with 24 posts each: 18 to train on, 3 + 3 held out."""
    return prepared(tmp_path_factory.mktemp("small"), simple_posts())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the examples of the docs first: they take longest, and workers should end together."""
    items.sort(key=lambda item: item.path.name != "test_docs.py")
