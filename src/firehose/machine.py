"""What there is to compute with, and what results were computed on."""

import ast
import hashlib
import io
import os
import platform
import tokenize
from functools import cache
from pathlib import Path

import torch


def cores() -> int:
    """As many as there are."""
    return os.cpu_count() or 1


@cache
def memory() -> int:
    """The bytes of memory that this process may use; others may play with it on this machine."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")  # of a container
    told = limit.read_text(encoding="utf-8").strip() if limit.is_file() else ""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return (min(there, int(told)) if told.isdigit() else there) // processes


def gpus() -> list[str]:
    """The numbers of those that torch can use, as CUDA_VISIBLE_DEVICES has them."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(number) for number in range(count)]


def machine() -> dict[str, str | int]:
    """The processor, and the versions that numbers depend on; nothing about whose it is."""
    found: dict[str, str | int] = {"gpu": torch.cuda.get_device_name()} if gpus() else {}
    if "RANK" in os.environ:  # as torchrun says it
        found["processes"] = int(os.environ["WORLD_SIZE"])
    return found | {
        "processor": _processor(), "cores": cores(), "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(), "torch": torch.__version__,
    }  # fmt: skip


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


DECISIVE = (  # modules and packages that decide the numbers of a run
    "batch.py", "optim", "parallel", "models", "methods",
    "data/corpus.py", "data/pictures", "data/stream.py",
    "game/assembly.py", "game/evaluate.py", "game/metrics.py", "game/outcome.py",
    "game/playing.py", "game/round.py", "game/scoring.py", "game/totals.py", "game/training.py",
)  # fmt: skip


@cache
def code_version() -> str:
    """A checksum of the sources that decide the result of a run; comments do not count."""
    home = Path(__file__).parent
    found = [home / name for name in DECISIVE]
    files = [file for each in found for file in ([each] if each.is_file() else each.rglob("*.py"))]
    sources = hashlib.sha256()
    for file in sorted(files):
        source = _bare(file.read_text(encoding="utf-8"))
        sources.update(f"{file.relative_to(home)}\n{source}".encode())
    return sources.hexdigest()[:16]


def _bare(source: str) -> str:
    """A module without comments, docstrings and white space: the same for every Python."""
    docstrings = {
        (node.lineno, node.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    kept = (
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type != tokenize.COMMENT and token.start not in docstrings
    )
    return "".join("".join(kept).split())
