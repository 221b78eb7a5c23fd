"""Names from anywhere are shown without what a terminal would obey."""

import bz2
import io
import json
import tarfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from firehose.cli.app import show
from firehose.data.engine import Task
from firehose.data.reading import read_shard
from firehose.data.sources.twitter import Twitter
from firehose.errors import FirehoseError, visible, visible_lines
from firehose.report.tables import Table

HOSTILE = "\x1b]0;owned\x07\x9b2J\u202egnp.exe\u2066\n\ud800"
SHOWN = r"\x1b]0;owned\x07\x9b2J\u202egnp.exe\u2066\n\ud800"


def test_what_a_terminal_obeys_is_shown_as_an_escape() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("zoë 日本 👩\u200d🔬") == "zoë 日本 👩\u200d🔬"
    assert visible_lines("one\x1b[1m\n\ttwo") == "one\\x1b[1m\n    two"


@given(st.text(st.characters()))
def test_nothing_that_is_shown_is_a_control(text: str) -> None:
    shown = visible(text)
    assert not {"Cc", "Cs", "Zl", "Zp"} & {*map(unicodedata.category, shown)}
    assert not any(unicodedata.bidirectional(letter) in BIDI for letter in shown)
    shown.encode()


BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_texts_and_tables_are_printed_without_controls(capsys: pytest.CaptureFixture[str]) -> None:
    show(f"First: {HOSTILE}", Table(["name"], [[HOSTILE]]))
    printed = capsys.readouterr().out
    assert not set("\x1b\x07\x9b\u202e\u2066") & set(printed)
    assert printed.count("owned") == 2


def test_members_of_an_archive_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        content = bz2.compress(b"broken\n")
        member = tarfile.TarInfo("\x1b[2J\u202e.json.bz2")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    source = Twitter(paths=(str(tmp_path / "a.tar"),))
    task: Task = {"number": 0, "shard": json.loads(json.dumps(source.shards()))[0]}
    where = rf"{tmp_path}/a.tar!\x1b[2J\u202e.json.bz2:1"
    told = read_shard(source, tmp_path, 100, False, task)
    assert told["examples"] == {"broken JSON": where}
    with pytest.raises(FirehoseError) as error:
        read_shard(source, tmp_path, 100, True, task)
    assert str(error.value) == f"{where}: broken JSON (--strict stops here)."
