"""Downloads from a server on this machine: whole, cut, resumed, wrong, missing."""

import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from firehose.data.pictures import download as downloading
from firehose.data.pictures.download import DownloadError, Published, download
from small_servers import Site, serving

CONTENT = bytes(range(256)) * 40
FILE = Published("pictures.gz", len(CONTENT), hashlib.md5(CONTENT).hexdigest())


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """What is entered here is served until the test ends; no proxy of the machine is asked."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloading, "BLOCK", 1000)
    with ExitStack() as stack:
        yield stack


def serve(servers: ExitStack, content: bytes = CONTENT, **behaviour: object) -> Site:
    """A server with one file, and its behaviour."""
    site = Site({FILE.name: content}, **behaviour)  # type: ignore[arg-type]
    return servers.enter_context(serving(site))


def get(folder: Path, *sites: Site) -> list[int]:
    """Download the file, check it, and return how many bytes were there after each block."""
    seen: list[int] = []
    places = [site.address for site in sites]
    path = download(FILE, places, folder, lambda _, count: seen.append(count))
    assert path == folder / FILE.name and path.read_bytes() == CONTENT
    assert [each.name for each in folder.iterdir()] == [FILE.name]
    return seen


def test_a_whole_download_shows_how_far_it_is(servers: ExitStack, tmp_path: Path) -> None:
    site = serve(servers)
    seen = get(tmp_path, site)
    assert seen == sorted(seen) and seen[-1] == len(CONTENT) and len(seen) > 5
    assert site.asked == [(FILE.name, "")]
    assert get(tmp_path, site) == []  # what is there is not asked for again
    assert len(site.asked) == 1


def test_a_cut_connection_is_opened_again_where_it_ended(
    servers: ExitStack, tmp_path: Path
) -> None:
    site = serve(servers, cut=3000, cuts=2)
    get(tmp_path, site)
    assert [wanted for _, wanted in site.asked] == ["", "bytes=3000-", "bytes=6000-"]


def test_what_an_earlier_command_has_left_is_continued(servers: ExitStack, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1 ended the connection after 0 of 10,240"):
        get(tmp_path, serve(servers, cut=0, cuts=9))
    (tmp_path / "pictures.gz.partial").write_bytes(CONTENT[:5000])
    site = serve(servers)
    assert get(tmp_path, site)[0] > 5000
    assert site.asked == [(FILE.name, "bytes=5000-")]


def test_what_was_complete_but_not_yet_renamed_is_not_asked_for(
    servers: ExitStack, tmp_path: Path
) -> None:
    (tmp_path / "pictures.gz.partial").write_bytes(CONTENT)
    site = serve(servers)
    get(tmp_path, site)
    assert site.asked == []


def test_a_server_without_ranges_sends_it_all_again(servers: ExitStack, tmp_path: Path) -> None:
    (tmp_path / "pictures.gz.partial").write_bytes(b"x" * 5000)
    get(tmp_path, serve(servers, ranges=False))


@pytest.mark.parametrize("left", [5000, len(CONTENT), len(CONTENT) + 7])
def test_a_wrong_beginning_is_fetched_again(servers: ExitStack, tmp_path: Path, left: int) -> None:
    (tmp_path / "pictures.gz.partial").write_bytes(b"x" * left)
    get(tmp_path, serve(servers))


def test_another_file_of_that_name_is_refused(servers: ExitStack, tmp_path: Path) -> None:
    changed, longer = serve(servers, CONTENT[:-1] + b"!"), serve(servers, CONTENT + b"!")
    with pytest.raises(
        DownloadError, match=r"its MD5 sum is not the published one, 127.* of 10,241"
    ):
        get(tmp_path, changed, longer)
    assert list(tmp_path.iterdir()) == []  # nothing wrong is kept
    get(tmp_path, changed, longer, serve(servers))


def test_a_place_without_the_file_leads_to_the_next_one(servers: ExitStack, tmp_path: Path) -> None:
    empty = servers.enter_context(serving(Site({})))
    get(tmp_path, empty, serve(servers, cut=10, cuts=3), serve(servers))
    assert len(empty.asked) == 1


def test_a_wrong_part_is_refused(servers: ExitStack, tmp_path: Path) -> None:
    (tmp_path / "pictures.gz.partial").write_bytes(CONTENT[:5000])
    with pytest.raises(DownloadError, match="another part of the file than it was asked for"):
        get(tmp_path, serve(servers, shift=1))
    assert (tmp_path / "pictures.gz.partial").read_bytes() == CONTENT[:5000]


def test_nobody_and_nonsense_are_told_in_a_few_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloading, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        places = [f"http://127.0.0.1:{each.getsockname()[1]}/" for each in (silent, free)]
        with pytest.raises(DownloadError) as told:
            download(FILE, places, tmp_path, lambda *_: None)
    assert str(told.value) == (
        "pictures.gz: 127.0.0.1 could not be reached (no answer in time), "
        "127.0.0.1 could not be reached ([Errno 111] Connection refused)"
    )
