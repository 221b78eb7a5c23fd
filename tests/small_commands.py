"""Commands that are run within the test's own process, which spares the import of torch."""

import os
import sys
from typing import NamedTuple

import pytest

from firehose.cli import main


class Said(NamedTuple):
    """What a command ended with, and what it printed."""

    status: int
    out: str
    err: str


class Commands:
    """Runs commands as the shell does, but here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(os, "_exit", sys.exit)
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> Said:
        """Run ``firehose`` with these arguments; what is a defect is raised."""
        self.monkeypatch.setattr(sys, "argv", ["firehose", *map(str, arguments)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0, *self.capsys.readouterr())
