"""Build the wheel, install it into an environment of its own, and run the demo with it.

Run as ``python benchmarks/wheel.py``; the index that pip is configured with has the dependencies.
"""

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Everything in a temporary folder; the first command that fails ends it."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        made = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "-w",
            str(home),
            str(ROOT),
        ]
        subprocess.run(made, check=True)
        (wheel,) = home.glob("*.whl")
        venv.create(home / "venv", with_pip=True)
        python = home / "venv" / "bin" / "python"
        install = ["-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([python, *install, wheel], check=True)
        begun = time.monotonic()
        program = home / "venv" / "bin" / "firehose"
        subprocess.run([program, "demo", "--out", home / "demo"], cwd=home, check=True)
        page = home / "demo" / "game" / "index.html"
        took = f"{time.monotonic() - begun:.0f} s"
        print(f"{wheel.name}: the demo took {took}, its page has {page.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
