"""Build the wheel, install it into an environment of its own, and run the demo with it.

Run as ``python benchmarks/wheel.py``; the index that pip is configured with has the dependencies.
As the Makefile does, it takes the CPU build of torch wherever pip can see one. It prints how long
each part took.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
QUIET = ("--quiet", "--disable-pip-version-check")
Result = TypeVar("Result")


def build(folder: Path) -> Path:
    """Build the wheel of this repository into a folder; returns its path."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        *QUIET,
        "--no-deps",
        "-w",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, home: Path) -> None:
    """Install a wheel and all that it needs into a new environment."""
    venv.create(home, with_pip=True)
    found = re.search(r"^torch==\S+$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{CONSTRAINTS} does not name a version of torch"
    pip = [str(home / "bin/python"), "-m", "pip", "install", *QUIET]
    cpu_build = [*pip, f"{found[0]}+cpu"]
    if subprocess.run(cpu_build, stderr=subprocess.DEVNULL, check=False).returncode:
        subprocess.run([*pip, found[0]], check=True)
    subprocess.run([*pip, "--constraint", str(CONSTRAINTS), str(wheel)], check=True)


def demonstrate(home: Path, out: Path) -> Path:
    """Run the demo with the environment's own program, away from the sources; returns its page."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    where = [str(home / "bin/python"), "-c", "import firehose; print(firehose.__file__)"]
    told = subprocess.run(where, cwd=home, env=clean, check=True, capture_output=True, text=True)
    assert Path(told.stdout.strip()).is_relative_to(home), f"not the wheel: {told.stdout}"
    command = [str(home / "bin/firehose"), "demo", "--out", str(out)]
    subprocess.run(command, cwd=home, env=clean, check=True)
    page = out / "game" / "index.html"
    assert "<h1>" in page.read_text(encoding="utf-8"), f"{page} is not a page"
    return page


def timed(doing: str, work: Callable[[], Result]) -> Result:
    """Do something, and print how long it took."""
    begun = time.monotonic()
    result = work()
    print(f"{doing}: {time.monotonic() - begun:.0f} s", flush=True)
    return result


def main() -> None:
    """Everything in a temporary folder; the first command that fails ends it."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        wheel = timed("built", lambda: build(home))
        timed("installed", lambda: install(wheel, home / "venv"))
        page = timed("demo", lambda: demonstrate(home / "venv", home / "demo"))
        print(f"{wheel.name}: its demo has a page of {page.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
