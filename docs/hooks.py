"""For the site: the pages of results are part of it, and links to them lead there."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any) -> Files:
    """Take the pages of results into the site."""
    for page in sorted((ROOT / "results").glob("*/index.html")):
        name = str(page.relative_to(ROOT))
        files.append(File.generated(config, name, abs_src_path=str(page)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to results lead to where they are in the site, and titles of code have quotes."""
    linked = markdown.replace("](../results/", "](results/")
    return re.sub(r"^```(\w+) title=(\S+)$", r'```\1 title="\2"', linked, flags=re.MULTILINE)
