"""Hand-made grabs of the sample stream: what is in them, what is damaged, what is hostile."""

import bz2
import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from firehose.data.post import Post, Skip
from firehose.data.sources import twitter
from firehose.data.sources.twitter import Twitter, created_at
from firehose.errors import FirehoseError

CREATED = "Wed Oct 10 20:19:24 +0000 2018"
TIME = 1_539_202_764_000


def v1(number: int, text: object = "hello", **fields: Any) -> dict[str, Any]:
    """A tweet object as API v1.1 delivers it."""
    return {
        "created_at": CREATED,
        "id": number,
        "id_str": str(number),
        "text": text,
        "user": {"id": 7, "id_str": "7", "screen_name": "ann"},
        "in_reply_to_status_id": None,
        "in_reply_to_user_id_str": None,
        "lang": "en",
    } | fields


def v2(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": str(number),
        "author_id": "7",
        "created_at": "2018-10-10T20:19:24.500Z",
        "text": "hello",
        "lang": "en",
    } | fields


def grab(*records: object) -> bytes:
    """One record a line; bytes are put in as they are."""
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    return b"".join(line + b"\n" for line in lines)


def tar(path: Path, members: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def read(*paths: Path, ids: tuple[Path, ...] = ()) -> list[Post | Skip]:
    source = Twitter(paths=tuple(map(str, paths)), ids=tuple(map(str, ids)))
    source = pickle.loads(pickle.dumps(source))
    shards = json.loads(json.dumps(source.shards()))
    return [record for shard in shards for record in source.read(shard)]


def one(record: object, folder: Path) -> Post | Skip:
    path = folder / "00.json"
    path.write_bytes(grab(record))
    (found,) = read(path)
    return found


def test_an_archive_team_tar(tmp_path: Path) -> None:
    cut = bz2.compress(grab(v1(20))) + bz2.compress(grab(v1(21)))[:-40]
    members = {
        "2018/10/10/20/19.json.bz2": bz2.compress(
            grab(
                v1(1),
                {"delete": {"status": {"id": 5, "user_id": 7}}},
                v1(2, "やっほー 🎉", lang="ja"),
                b"",
                v1(3, "RT @bob: hi", retweeted_status=v1(1)),
                b'{"created_at": "Wed Oct',
            )
        ),
        "2018/10/10/20/20.json.gz": gzip.compress(grab(v1(10, in_reply_to_user_id_str="9")))
        + gzip.compress(grab({"limit": {"track": 3}}, v1(11, lang="und"))),
        "2018/10/10/20/21.json.bz2": cut,
        "../../x.json.bz2": bz2.compress(grab(v1(30))),
        "/etc/x.json": grab(v1(31)),
        "README.txt": b"not tweets",
    }
    (tmp_path / "in").mkdir()
    path = tar(tmp_path / "in" / "twitter-2018-10-10.tar", members)
    before = sorted(tmp_path.parent.rglob("*"))
    post = Post("7", "hello", TIME, "1", "en")
    minute = f"{path}!2018/10/10/20/"
    assert read(path) == [
        post,
        Skip("delete notice", f"{minute}19.json.bz2:2", expected=True),
        Post("7", "やっほー 🎉", TIME, "2", "ja"),
        Post("7", "RT @bob: hi", TIME, "3", "en", is_retweet=True),
        Skip("broken JSON", f"{minute}19.json.bz2:6"),
        post._replace(id="10", is_reply=True),
        Skip("control message", f"{minute}20.json.gz:2", expected=True),
        post._replace(id="11", language=None),
        post._replace(id="20"),
        Skip("truncated or corrupt member", f"{minute}21.json.bz2"),
        post._replace(id="30"),
        post._replace(id="31"),
    ]
    assert sorted(tmp_path.parent.rglob("*")) == before
    assert Twitter.recognises(path)


def test_only_regular_members_are_read(tmp_path: Path) -> None:
    target = tmp_path / "secret.json"
    target.write_bytes(grab(v1(1)))
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            link = tarfile.TarInfo("00.json")
            link.type, link.linkname = kind, str(target)
            archive.addfile(link)
    with pytest.raises(FirehoseError, match=r"a\.tar holds no \.json\.bz2"):
        read(path)


def test_zip_loose_files_and_folders_give_the_same(tmp_path: Path) -> None:
    minutes = {"00.json.bz2": bz2.compress(grab(v1(1))), "01.json.gz": gzip.compress(grab(v1(2)))}
    hour = tmp_path / "2018/10/10/20"
    hour.mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("2018.json")
        for name, content in minutes.items():
            (hour / name).write_bytes(content)
            archive.writestr(f"2018/{name}", content)
    expected = [Post("7", "hello", TIME, "1", "en"), Post("7", "hello", TIME, "2", "en")]
    assert read(tmp_path / "a.zip") == expected
    assert read(tmp_path / "2018") == expected
    assert read(hour / "*.bz2", hour / "01.json.gz") == expected
    for path in (tmp_path / "a.zip", tmp_path / "2018", hour / "00.json.bz2", hour / "*.gz"):
        assert Twitter.recognises(path)
    assert not Twitter.recognises(tmp_path / "posts.json.gz")


def test_damaged_zips(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("00.json", grab(v1(1)))
        archive.writestr("01.json", grab(v1(2)))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"id": 1', b'"id": 3', 1).replace(b'_str": "1"', b'_str": "3"'))
    found = read(path)
    assert found[-2:] == [
        Skip("truncated or corrupt member", f"{path}!00.json"),
        Post("7", "hello", TIME, "2", "en"),
    ]
    path.write_bytes(whole[:-30])
    assert read(path) == [Skip("truncated or corrupt archive", str(path))]


def test_a_cut_tar_gives_its_whole_members_and_a_skip(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", {f"0{i}.json": grab(v1(i)) for i in range(1, 4)})
    whole = path.read_bytes()
    posts = [Post("7", "hello", TIME, str(i), "en") for i in range(1, 4)]
    skip = Skip("truncated or corrupt archive", str(path))
    assert read(path) == posts
    for length, count in ((2_048, 2), (2_048 + 100, 2), (2_560, 2), (2_600, 2), (3_072, 3), (0, 0)):
        path.write_bytes(whole[:length])
        assert read(path) == [*posts[:count], skip], length


def test_long_archives_are_cut_between_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twitter, "BYTES_PER_SHARD", 600)
    path = tar(tmp_path / "a.tar", {f"0{i}.json": grab(v1(i)) for i in range(7)})
    shards = Twitter(paths=(str(path),)).shards()
    assert [len(shard["members"]) for shard in shards] == [3, 3, 1]
    assert [post.id for post in read(path) if isinstance(post, Post)] == list("0123456")


PLAIN = Post("7", "hello", TIME, "5", "en")


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (v1(5, "&amp; as it is"), PLAIN._replace(text="&amp; as it is")),
        (v1(5, extended_tweet={"full_text": "all"}, full_text="no"), PLAIN._replace(text="all")),
        (v1(5, "cut…", full_text="all"), PLAIN._replace(text="all")),
        (v1(5, "RT @bob: hi"), PLAIN._replace(text="RT @bob: hi", is_retweet=True)),
        (v1(5, "ART @bob"), PLAIN._replace(text="ART @bob")),
        (v1(5, retweeted_status={"id": 1}), PLAIN._replace(is_retweet=True)),
        (v1(5, retweeted_status=None), PLAIN),
        (v1(5, quoted_status=v1(1), is_quote_status=True), PLAIN),
        (v1(5, in_reply_to_status_id=3), PLAIN._replace(is_reply=True)),
        (v1(5, in_reply_to_status_id_str="3"), PLAIN._replace(is_reply=True)),
        (v1(5, in_reply_to_user_id=3), PLAIN._replace(is_reply=True)),
        (v1(5, id_str=None, user={"id": 7}), PLAIN),
        (v1(5, lang=""), PLAIN._replace(language=None)),
        (v1(5, lang=None), PLAIN._replace(language=None)),
        (v2(5), PLAIN._replace(time=TIME + 500)),
        ({"data": v2(5), "includes": {}}, PLAIN._replace(time=TIME + 500)),
        (
            v2(5, referenced_tweets=[{"type": "retweeted", "id": "1"}]),
            PLAIN._replace(time=TIME + 500, is_retweet=True),
        ),
        (
            v2(5, referenced_tweets=[{"type": "quoted"}, {"type": "replied_to"}]),
            PLAIN._replace(time=TIME + 500, is_reply=True),
        ),
        (v2(5, referenced_tweets=[{"type": "quoted"}]), PLAIN._replace(time=TIME + 500)),
        (v2(5, in_reply_to_user_id="1"), PLAIN._replace(time=TIME + 500, is_reply=True)),
        (
            v1(1_050_118_621_198_921_728, created_at=None),
            PLAIN._replace(id="1050118621198921728", time=1_539_202_764_211),
        ),
    ],
)
def test_tweets(tmp_path: Path, record: object, expected: Post) -> None:
    assert one(record, tmp_path) == expected


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (v1(5, id=None, id_str=None), "no id"),
        (v1(5, user=None), "no user"),
        (v1(5, user={}), "no user"),
        (v2(5, author_id=None), "no user"),
        (v1(5, text=None), "no text"),
        (v1(5, text=["a"]), "no text"),
        (v1(5, created_at=None), "no time"),
        (v1(5, created_at="Wed Oct 32 20:19:24 +0000 2018"), "unreadable time"),
        (v1(5, created_at=12), "unreadable time"),
        ({"unheard": "of"}, "no id"),
        ([1], "not a JSON object"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "broken JSON"),
        (v1(5, "\ud83d"), "not UTF-8"),
        ({"delete": {"status": {"id": 1}}}, "delete notice"),
        *(
            ({key: {}}, "control message")
            for key in ("limit", "scrub_geo", "status_withheld", "user_withheld", "disconnect")
        ),
    ],
)
def test_what_is_no_tweet(tmp_path: Path, record: object, reason: str) -> None:
    is_expected = reason in ("delete notice", "control message")
    assert one(record, tmp_path) == Skip(reason, f"{tmp_path / '00.json'}:1", is_expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CREATED, TIME),
        ("Wed Oct 10 22:19:24 +0200 2018", TIME),
        ("Wed Oct 10 14:49:24 -0530 2018", TIME),
        ("Thu Jan 01 00:00:00 +0000 1970", 0),
        ("Wed Dec 31 23:59:59 +0000 1969", -1_000),
        ("Mon Feb 29 00:00:00 +0000 2016", 1_456_704_000_000),
        ("Wed Feb 29 00:00:00 +0000 2017", None),
        ("Wed Okt 10 20:19:24 +0000 2018", None),
        ("Wed Oct 10 24:19:24 +0000 2018", None),
        ("2018-10-10T20:19:24Z", TIME),
    ],
)
def test_creation_times(text: str, expected: int | None) -> None:
    assert created_at(text) == expected


def test_published_lists_select_and_split(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "train.csv").write_text("user,tweet,time\n7,1,0\n7,4,0\n")
    (lists / "valid.csv").write_text("user,tweet,time\n7,2,0\n")
    (lists / "test.csv").write_text("user,tweet,time\n8,3,0\n")
    path = tmp_path / "00.json"
    path.write_bytes(grab(v1(1), v1(2, lang="ja"), v1(3), v1(4, "RT @b"), v1(5), {"delete": {}}))
    post = Post("7", "hello", TIME, "1", "en", split="train")
    assert read(path, ids=(lists,)) == [
        post,
        post._replace(id="2", language="ja", split="validation"),
        Skip("another user than in the list", f"{path}:3"),
        post._replace(id="4", text="RT @b", is_retweet=True),
        Skip("not in the published list", f"{path}:5", expected=True),
        Skip("delete notice", f"{path}:6", expected=True),
    ]
    with pytest.raises(FirehoseError, match=r"nope\.csv in source\.ids does not exist"):
        Twitter(paths=(str(path),), ids=(str(tmp_path / "nope.csv"),)).shards()


def test_a_tar_that_leads_back_to_its_start_ends(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", {f"{n:02}.json": grab(v1(n)) for n in (1, 2, 3)})
    data = bytearray(path.read_bytes())
    third = 2048
    data[third + 124 : third + 136] = (-1536).to_bytes(12, "big", signed=True)  # its size
    header = data[third : third + 512]
    header[148:156] = b" " * 8
    data[third + 148 : third + 156] = b"%06o\0 " % sum(header)
    path.write_bytes(data)
    posts = [Post("7", "hello", TIME, name, "en") for name in ("1", "2")]
    assert read(path) == [*posts, Skip("truncated or corrupt archive", str(path))]


@pytest.mark.parametrize("size", [10**6, 8**11 - 1, 2**80])
def test_a_member_that_claims_an_absurd_size_is_damage(tmp_path: Path, size: int) -> None:
    path = tar(tmp_path / "a.tar", {"00.json": grab(v1(1)), "01.json": grab(v1(2))})
    data = bytearray(path.read_bytes())
    name = tarfile.TarInfo("01.json")
    name.size = size
    data[1024:1536] = name.tobuf(tarfile.GNU_FORMAT)
    path.write_bytes(data)
    post = Post("7", "hello", TIME, "1", "en")
    assert read(path) == [post, Skip("truncated or corrupt archive", str(path))]


def test_zip_members_of_the_same_name_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("00.json", grab(v1(1)))
        archive.writestr("00.json", grab(v1(2)))
    assert [one.id for one in read(path) if isinstance(one, Post)] == ["1", "2"]


def test_overlong_and_deep_tweets_are_counted_one_by_one(tmp_path: Path) -> None:
    deep = b'{"id_str": "3", "text": ' + b"[" * 100_000
    content = grab(v1(1), b"x" * (5 << 20), deep, v1(2))
    path = tar(tmp_path / "a.tar", {"00.json.bz2": bz2.compress(content, 1)})
    post, long, broken, last = read(path)
    assert long == Skip("too long", f"{path}!00.json.bz2:2")
    assert broken == Skip("broken JSON", f"{path}!00.json.bz2:3")
    assert (post, last) == (one(v1(1), tmp_path), one(v1(2), tmp_path))
