"""A Ray cluster needs a folder that all its hosts share: that is checked before anything starts."""

from pathlib import Path

import pytest

from firehose.data import engine
from firehose.data.engine import refuse_unshared
from firehose.errors import FirehoseError


def test_hosts_that_do_not_have_the_folder_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen_by(file: Path) -> dict[str, str | None]:
        own = file.read_text(encoding="utf-8")
        return {"10.0.0.1": own, "10.0.0.3": "of another run", "10.0.0.2": None}

    monkeypatch.setattr(engine, "seen_by", seen_by)
    with pytest.raises(FirehoseError, match=r"not the same folder on 10\.0\.0\.2, 10\.0\.0\.3 of"):
        refuse_unshared(tmp_path, "ray")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_all_have_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "seen_by", lambda file: {"10.0.0.1": file.read_text("utf-8")})
    refuse_unshared(tmp_path, "ray")
    assert not list(tmp_path.iterdir())


def test_without_a_cluster_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "seen_by", None)
    refuse_unshared(tmp_path, "native")
