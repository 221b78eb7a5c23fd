"""Tweets from the Archive Team's grabs of Twitter's sample stream, read in place.

They are tar or zip archives of ``YYYY/MM/DD/HH/mm.json.bz2``, or such files by themselves, with a
tweet object of API v1.1 or v2, or a notice, in each line. Members are read by their position in the
archive, and nothing is extracted, so that a member's name can do no harm.
"""

import re
import stat
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

from firehose.config import Texts
from firehose.data.post import Post, Skip
from firehose.data.sources import Shard, Source
from firehose.data.sources.fields import checked, json_post, label, moment
from firehose.data.sources.files import DamagedError, find_files, holds, lines, open_file, unpack
from firehose.data.sources.lists import Published, list_files, published
from firehose.errors import FirehoseError

BYTES_PER_SHARD = 64 << 20  # compressed
Member = tuple[str, int, int]  # of an archive: its name, place and compressed size

_ARCHIVE = re.compile(r"\.(tar|zip)$", re.IGNORECASE)
_TWEETS = re.compile(r"\.json(\.bz2|\.gz)?$", re.IGNORECASE)
_MINUTE = re.compile(r"^\d\d\.json\.(bz2|gz)$", re.IGNORECASE)
_WANTS = "the Archive Team's .tar or .zip files, .json.bz2 or .json.gz files, or a folder of these"

_CREATED = re.compile(
    r"\w{3} (\w{3}) (\d\d) ([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60) ([+-])(\d\d)(\d\d) (\d{4})",
    re.ASCII,
)
_DAY_0 = date(1970, 1, 1).toordinal()
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FIRST_SNOWFLAKE = 29_700_859_247  # older ids are plain counts without a time
_SNOWFLAKE_EPOCH = 1_288_834_974_657
_REPLIED_TO = ("status_id", "status_id_str", "user_id", "user_id_str")
_REPLY_KEYS = tuple(f"in_reply_to_{what}" for what in _REPLIED_TO)
_EXPECTED = frozenset({"delete notice", "control message", "not in the published list"})
# The keys of messages that the stream sends besides tweets; tweets have none of them.
_CONTROL = re.compile(
    "control|disconnect|errors|event|for_user|friends|friends_str|limit|scrub_geo|sitevisit|"
    "status_withheld|warning|user_(withheld|delete|undelete|protect|unprotect|suspend|unsuspend)"
)


class Twitter(Source):
    """The sample stream; with ``ids``, only the tweets of published lists, in their splits."""

    kind: Literal["twitter"] = "twitter"
    ids: Texts = ()

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether ``path`` is an archive or a minute's file by its name, or a folder of such."""
        return holds(path, lambda name: bool(_ARCHIVE.search(name) or _MINUTE.search(name)))

    def shards(self) -> list[Shard]:
        """Shards of about 64 MiB of the members of an archive, or of one file."""
        if self.ids:
            list_files(self.ids)  # raises an error for a wrong path now, not in a worker
        shards: list[Shard] = []
        for path in find_files(self.paths, _is_input, _WANTS):
            cut = {".tar": _tar_shards, ".zip": _zip_shards}.get(path.suffix.lower())
            shards += cut(str(path)) if cut else [{"path": str(path)}]
        return shards

    def read(self, shard: Shard) -> Iterator[Post | Skip]:
        """A post or skip for each line, in the archive's order; a skip names file!member:line."""
        path = shard["path"]
        lists = published(self.ids) if self.ids else None
        for name, content in _members(shard):
            try:
                for number, line in enumerate(lines(content), 1):
                    found = json_post(line, _tweet)
                    if lists and isinstance(found, Post):
                        found = _listed(found, lists)
                    if isinstance(found, Post):
                        yield found
                    elif found:
                        yield Skip(found, f"{path}{name}:{number}", found in _EXPECTED)
            except DamagedError:
                part = "member" if name else "file"
                yield Skip(f"truncated or corrupt {part}", f"{path}{name}")
        if shard.get("is_cut"):
            yield Skip("truncated or corrupt archive", path)


def _is_input(name: str) -> bool:
    return bool(_ARCHIVE.search(name) or _TWEETS.search(name))


def _tar_shards(path: str) -> list[Shard]:
    """Shards of the complete members of a tar, and a last one that reports damage, if any."""
    members: list[Member] = []
    is_cut = False
    with open_file(path) as file:
        size = Path(path).stat().st_size
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                place = -1
                for member in archive:
                    if member.size < 0 or member.offset_data <= place:  # tarfile would go round
                        raise EOFError
                    place = member.offset_data
                    is_plain = member.isreg() and not member.issparse()
                    is_whole = member.offset_data + member.size <= size
                    if is_plain and is_whole and _TWEETS.search(member.name):
                        # The name is only shown in skips, so it may be altered.
                        name = member.name.encode("utf-8", "replace").decode()
                        members.append((name, member.offset_data, member.size))
                # A tar ends with zeros; tarfile also accepts half a header, or nothing, as its end.
                file.seek(archive.offset)
                header = file.read(tarfile.BLOCKSIZE)
                is_cut = not header or any(header)
        except Exception:  # TarError, EOFError, MemoryError …: a damaged header can raise anything
            is_cut = True
    return _grouped(path, members, is_cut)


def _zip_shards(path: str) -> list[Shard]:
    open_file(path).close()  # raises an error where the file may not be read
    try:
        with zipfile.ZipFile(path) as archive:
            members = [
                (info.filename, info.header_offset, info.compress_size)
                for info in archive.infolist()
                if _TWEETS.search(info.filename) and not stat.S_ISLNK(info.external_attr >> 16)
            ]
    except Exception:  # BadZipFile, OSError, struct.error …
        return _grouped(path, [], is_cut=True)
    return _grouped(path, members, is_cut=False)


def _grouped(path: str, members: Sequence[Member], is_cut: bool) -> list[Shard]:
    if not members and not is_cut:
        raise FirehoseError(f"{path} holds no .json.bz2, .json.gz or .json file: name {_WANTS}.")
    shards: list[Shard] = []
    room = 0
    for member in members:
        if room <= 0:
            shards.append({"path": path, "members": []})
            room = BYTES_PER_SHARD
        shards[-1]["members"].append(member)
        room -= member[2]
    return [*shards, {"path": path, "members": [], "is_cut": True}] if is_cut else shards


def _members(shard: Shard) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The label and content of each member; a file by itself has an empty label."""
    path = shard["path"]
    if "members" not in shard:
        with open_file(path) as file:
            yield "", unpack(file, path)
    elif not shard["members"]:
        return
    elif path.lower().endswith(".tar"):
        with open_file(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for name, offset, size in shard["members"]:
                member = tarfile.TarInfo(name)
                member.offset_data, member.size = offset, size
                yield f"!{name}", unpack(archive.extractfile(member), name)
    else:
        with zipfile.ZipFile(path) as archive:
            found = {info.header_offset: info for info in archive.infolist()}  # names may repeat
            for name, offset, _ in shard["members"]:
                yield f"!{name}", _unzip(archive, found[offset])


def _unzip(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        member = archive.open(info)
    except Exception as error:  # damaged, encrypted, or of an unknown compression
        raise DamagedError from error
    with member:
        yield from unpack(member, info.filename)


def _listed(post: Post, lists: Published) -> Post | str:
    """The post with the split that the lists name, or why it is not used."""
    split = lists.split_of(post.id, post.user)
    if split is None:
        return "not in the published list"
    return post._replace(split=split) if split else "another user than in the list"


def _tweet(tweet: dict[str, Any]) -> Post | str:
    """The post in a tweet object of API v1.1 or v2, or why it is none."""
    if isinstance(tweet.get("data"), dict):
        tweet = tweet["data"]
    if "delete" in tweet:
        return "delete notice"
    if "text" not in tweet and any(map(_CONTROL.fullmatch, tweet)):
        return "control message"
    get = tweet.get
    user_object = get("user")
    if isinstance(user_object, dict):
        user = label(user_object.get("id_str")) or label(user_object.get("id"))
    else:
        user = label(get("author_id"))
    identity = label(get("id_str")) or label(get("id"))
    extended = get("extended_tweet")
    full_text = extended.get("full_text") if isinstance(extended, dict) else None
    text: Any = full_text or get("full_text") or get("text")
    for what, value in (("id", identity), ("user", user), ("text", text)):
        if not value or not isinstance(value, str):
            return f"no {what}"
    time = _time(get("created_at"), identity)
    if isinstance(time, str):
        return time
    references = get("referenced_tweets")
    references = references if isinstance(references, list) else []
    kinds = [each.get("type") for each in references if isinstance(each, dict)]
    language = None if get("lang") == "und" else label(get("lang")) or None
    is_retweet = get("retweeted_status") is not None or "retweeted" in kinds
    is_retweet = is_retweet or text.startswith("RT @")
    is_reply = "replied_to" in kinds or any(get(key) is not None for key in _REPLY_KEYS)
    return checked(Post(user, text, time, identity, language, is_retweet, is_reply))


def _time(created: Any, identity: str) -> int | str:
    if created is None or created == "":
        number = int(identity) if identity.isdecimal() else 0
        if number < _FIRST_SNOWFLAKE:
            return "no time"
        found: int | None = (number >> 22) + _SNOWFLAKE_EPOCH
    else:
        found = created_at(created) if isinstance(created, str) else None
    return "unreadable time" if found is None else found


def created_at(text: str) -> int | None:
    """Milliseconds since 1970, from “Wed Oct 10 20:19:24 +0000 2018” or ISO 8601; else None."""
    match = _CREATED.fullmatch(text)
    if not match:
        return moment(text)
    month, day, hour, minute, second, sign, zone_hour, zone_minute, year = match.groups()
    try:
        days = date(int(year), _MONTHS.index(month) + 1, int(day)).toordinal() - _DAY_0
    except ValueError:
        return None
    seconds = (days * 24 + int(hour)) * 3600 + int(minute) * 60 + int(second)
    zone = int(zone_hour) * 3600 + int(zone_minute) * 60
    return (seconds - zone if sign == "+" else seconds + zone) * 1_000
