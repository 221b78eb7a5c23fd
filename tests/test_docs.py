"""Every example in the README and the docs is run, page by page, in an empty folder."""

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import firehose

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(python|sh|toml)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks, f"{page.name} shows no example"
    for kind, title, code in blocks:
        if title:
            (tmp_path / title).write_text(code, encoding="utf-8")
            if kind == "sh":  # a script for elsewhere: at least its syntax is right
                subprocess.run(["bash", "-n", title], cwd=tmp_path, check=True)
        if title or kind == "toml":
            continue
        commands = (
            [[sys.executable, "-c", code]]
            if kind == "python"
            else [[sys.executable, "-m", *shlex.split(line)] for line in code.splitlines()]
        )
        for command in commands:
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


def test_every_public_name_has_an_entry_in_the_api() -> None:
    entries = re.findall(
        r"^::: firehose\.([\w.]+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE
    )
    public = [name for name in firehose.__all__ if name != "__version__"]
    assert sorted(entry.rpartition(".")[2] for entry in entries) == sorted(public)
    for entry in entries:
        home, _, name = entry.rpartition(".")
        found = getattr(importlib.import_module(f"firehose.{home}"), name)
        assert found.__doc__, entry


def test_every_page_is_in_the_site() -> None:
    told = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES[1:]:
        assert f": {page.name}\n" in told, f"{page.name} is not in the nav of mkdocs.yml"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
