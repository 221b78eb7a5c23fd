"""Every example in the README and the docs is run, page by page, in an empty folder."""

import ast
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import firehose
from firehose.cli.app import app

ROOT = Path(__file__).parents[1]
INSIDE = ("firehose.serving.", "firehose.generation.")  # parts that serve.md shows from within
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


def entries() -> list[str]:
    """What the API reference has, by module and name."""
    told = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    return re.findall(r"^::: (firehose\.[\w.]+)$", told, re.MULTILINE)


def imported(page: Path) -> set[str]:
    """The names that the examples of a page import from modules of Firehose, with the modules."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    trees = [ast.parse(code) for kind, _, code in blocks if kind == "python"]
    return {
        f"{node.module}.{alias.name}"
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("firehose.")
        for alias in node.names
    }


def found(entry: str) -> Any:
    """What an entry of the API names."""
    home, _, name = entry.rpartition(".")
    return getattr(importlib.import_module(home), name)


def test_every_public_name_has_an_entry_in_the_api() -> None:
    public = {name for name in firehose.__all__ if name != "__version__"}
    homes = {f"{home}.{name}" for name, home in firehose._HOMES.items()}
    assert homes <= set(entries()), f"docs/api.md lacks {sorted(homes - set(entries()))}"
    assert public == {home.rpartition(".")[2] for home in homes}
    assert len(set(entries())) == len(entries())
    for entry in entries():
        assert found(entry).__doc__, entry


def test_every_command_is_a_public_function() -> None:
    """But `listen`, which is a program beside the service."""
    others = {"classic": {"fetch", "run_classic"}, "listen": set()}
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        assert others.get(name, {name}) <= set(firehose.__all__), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_examples_import_has_an_entry_in_the_api(page: Path) -> None:
    for name in sorted(imported(page)):
        is_ours = str(getattr(found(name), "__module__", "")).startswith("firehose.")
        if is_ours and not name.startswith(INSIDE):  # not an alias of a type
            public = name.rpartition(".")[2] in firehose.__all__
            assert public or name in entries(), f"{page.name} imports {name}, not in docs/api.md"


def test_every_page_is_in_the_site() -> None:
    told = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES[1:]:
        assert f": {page.name}\n" in told, f"{page.name} is not in the nav of mkdocs.yml"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
