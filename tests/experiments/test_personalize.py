"""Whether personalization helps: from a corpus to a page that says so."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from conftest import prepared, simple_posts
from firehose.data.corpus import Corpus
from firehose.errors import FirehoseError
from firehose.experiments import personalize as module
from firehose.experiments.jobs import Job
from firehose.experiments.personalize import Personalization, personalize
from small_experiments import do, tiny_scale


def _here(jobs: list[Job], _: int) -> dict[str, str]:
    for job in jobs:
        if not job.is_done:
            do(job)
    return {}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return prepared(tmp_path_factory.mktemp("people"), simple_posts(users=6, posts=24))


@pytest.fixture(scope="module")
def found(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Personalization:
    folder = tmp_path_factory.mktemp("personal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "execute", _here)
        return personalize(corpus, folder / "page", tiny_scale(folder))


def test_the_page_answers_first(found: Personalization) -> None:
    text = found.page.read_text()
    summary = re.search(r'<p class="summary">(.*?)</p>', text)
    assert summary and summary[1] == found.sentence
    assert "Without pretraining" in text and not found.is_pretrained
    for title in ("number of earlier posts", "time since the last", "By activity", "Over users"):
        assert title in text
    assert "What it costs" in text and text.count("<svg") == 4
    assert text.count('<dl class="shaded">') >= 6


def test_what_is_printed_is_what_was_paid(found: Personalization) -> None:
    values = json.loads(json.dumps(found.public()))
    best = values["methods"]["model and memories"]
    assert best["users known"] == pytest.approx(found.methods[-1].online.known[0].perplexity())
    assert best["gain"]["value"] == pytest.approx(1 - best["users known"] / best["users unknown"])
    assert best["gain"]["low"] <= best["gain"]["value"] <= best["gain"]["high"]
    rows = pq.read_table(found.page.parent / "results.parquet").to_pylist()
    gains = [row["value"] for row in rows if row["measure"] == "online, gain"]
    assert gains[-1] == pytest.approx(best["gain"]["value"])
    agnostic = found.methods[0].unknown[0].settings.model.architecture
    assert agnostic == "agnostic" != found.methods[0].known[0].settings.model.architecture


def test_a_masked_page_shows_no_word_and_no_name(
    found: Personalization, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "<td>user3</td>" in found.page.read_text()
    monkeypatch.setattr(module, "execute", _here)
    folder = found.page.parent
    masked = personalize(corpus, folder, folder.parent / "tiny.toml", mask=True)
    shown = re.findall(r'<span class="shade\d" title="[^"]*">(.*?)</span>', masked.page.read_text())
    assert shown and not any(re.search("[a-z]", word.replace("&lt;EOT&gt;", "")) for word in shown)
    assert "<td>user3</td>" not in masked.page.read_text()


def test_too_few_posts_are_refused(small_corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(FirehoseError, match=r"54 posts by 3 users: too few"):
        personalize(small_corpus, tmp_path / "page")


def test_a_run_that_fails_is_named(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "execute", lambda jobs, _: {jobs[-1].key: "No room."})
    with pytest.raises(FirehoseError, match=r"failed: No room; .*\.log has more"):
        personalize(corpus, tmp_path / "page", tiny_scale(tmp_path))
    assert not (tmp_path / "page" / "index.html").exists()
