"""The wheel has all that an installed Firehose needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_wheel_has_recipes_presets_types_and_looks(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    command = "from hatchling.build import build_wheel; import sys; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", command, str(tmp_path)], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = ("py.typed", "report/page.css", "report/page.html", "recipes/laptop.toml")
    for name in (*needed, "recipes/experiments/test.toml", "recipes/presets/reddit.toml"):
        assert f"firehose/{name}" in names, name
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert sources <= names
