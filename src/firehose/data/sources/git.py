"""Posts from git repositories: a commit is a post, its author the user, its message the text.

Histories of open projects are streams of short texts by many people over many years, and
anyone can get them: ``git clone --bare --filter=tree:0`` fetches commits without the files.
"""

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Literal

from pydantic import Field, field_validator

from firehose.data.post import Post, Skip
from firehose.data.sources import Shard, Source
from firehose.data.sources.fields import TOO_LONG
from firehose.data.sources.files import Overlong, lines
from firehose.errors import FirehoseError

# Six fields, each ended by NUL (-z ends the last). Names and messages cannot contain NUL, as git
# reads commits as C strings; any other separator could be in a message.
_FIELDS = 6
_LOG = ["log", "-z", "-s", "--format=tformat:%H%x00%P%x00%at%x00%aN%x00%aE%x00%B"]
_LOG += ["--use-mailmap", "--no-show-signature", "--no-notes", "--no-color", "--encoding=UTF-8"]
_SETTINGS = ["-c", "log.showSignature=false", "-c", "core.quotePath=false"]
_SETTINGS += ["-c", "safe.directory=*"]
_ENVIRONMENT = {
    "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_GLOBAL": os.devnull,
    # A partial clone must not fetch missing objects.
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none",
}  # fmt: skip
_BLOCK = 1 << 20

_HASH = re.compile(r"(?:[0-9a-f]{64}|[0-9a-f]{40})")
_END_OF_TIME = 4_102_444_800  # 2100-01-01

_MERGE = re.compile(r"Merge (?:branch|branches|pull request|remote-tracking|tag) ")
_BOT = re.compile(
    r"\[bot\]|dependabot|renovate|github-actions|buildbot|auto-?roll|weblate|pre-commit-ci"
    r"|greenkeeper|copybara|[-_. <]bot@|[-_. ]bot <|\brobot\b|<(?:no-?reply|jenkins)@"
)
_CAMEL_BOT = re.compile(r"[a-z]Bot\b")  # BrewTestBot, but not Talbot

# Trailers that cannot be anything else are removed wherever they are.
_KNOWN_TRAILER = re.compile(
    r"^[ \t]*(?:(?:(?:signed-off|co-authored|co-developed|authored|committed|reviewed|acked|tested"
    r"|reported|suggested|approved|requested|helped|mentored|submitted|landed|pushed)-by|change-id"
    r"|(?:original-)?reviewed-(?:on|at)|commit-queue|cr-[\w-]+|auto-submit|git-svn-id"
    r"|differential revision):.*|\(cherry picked from commit .*)$\n?",
    re.IGNORECASE | re.MULTILINE,
)
# Other trailers, any "Token-With-Dashes: value" with the lines that continue it, are removed only
# in the last paragraph and never in the subject, which may be "test: more" or "x-ray: new".
_TRAILER = re.compile(
    r"^(?:[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)+|Bug|Cc|CC|Closes|Fixes|Issue|Link|Refs|TBR|Test)"
    r":[ \t].*$(?:\n[ \t]+.*$)*\n?",
    re.MULTILINE,
)
_PARAGRAPH = re.compile(r"\n(?:[ \t]*\n)+")
_MAIL = re.compile(
    r"<[^<>\s]{1,200}@[^<>\s]{1,200}>|[\w.+%-]{1,200}@(?:[\w-]{1,63}\.){1,9}[A-Za-z]{2,}"
)
_FULL_HASH = re.compile(rf"(?<![0-9A-Za-z]){_HASH.pattern}(?![0-9A-Za-z])")
_LONGEST = 20_000  # characters of a message that are read; texts are cut to far fewer


class Git(Source):
    """Commits of one or many git repositories.

    ``paths`` are work trees, bare repositories, or folders of repositories. The name of an author
    is a keyed hash of the e-mail address. Who knows ``key`` can find out whether an address is
    among the authors, so set a secret one; it is never written anywhere.
    """

    kind: Literal["git"] = "git"
    authors: Literal["hashed", "plain"] = "hashed"
    key: str = Field(default="firehose", exclude=True, repr=False, min_length=1)
    branch: str = "HEAD"
    max_characters: int = Field(default=280, ge=1)

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: str) -> str:
        if len(key.encode()) > hashlib.blake2b.MAX_KEY_SIZE:
            raise ValueError(f"at most {hashlib.blake2b.MAX_KEY_SIZE} bytes")
        return key

    @field_validator("branch")
    @classmethod
    def _check_branch(cls, branch: str) -> str:
        if not branch or branch.startswith("-"):  # git would take it for an option
            raise ValueError("the name of a branch, a tag or a commit")
        return branch

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether ``path`` is a repository or a folder of repositories."""
        return bool(_repositories(path))

    def shards(self) -> list[Shard]:
        """One shard for each repository."""
        if not self.paths:
            raise FirehoseError("The git source has no paths: name at least one repository.")
        found: dict[str, None] = {}
        for given in self.paths:
            repositories = _repositories(Path(given).expanduser())
            if not repositories:
                raise FirehoseError(
                    f"{given} is neither a git repository nor a folder of them: give a clone."
                )
            found |= dict.fromkeys(str(each.resolve()) for each in repositories)
        for path in found:
            self._check(path)
        return [{"path": path} for path in found]

    def read(self, shard: Shard) -> Iterator[Post | Skip]:
        """The commits of one repository, newest first; the log is read as it comes."""
        path = shard["path"]
        known: dict[tuple[bytes, bytes], str | None] = {}
        for sha, fields in _log(path, self.branch):
            if fields is None:
                yield Skip(TOO_LONG, f"{path} {sha}")
                continue
            parents, seconds, name, email, raw = fields
            message = _decode(raw)
            if (name, email) not in known:
                known[name, email] = self._author(_decode(name), _decode(email))
            user = known[name, email]
            if b" " in parents or _MERGE.match(message):
                yield Skip("merge commit", f"{path} {sha}", expected=True)
            elif user is None:
                yield Skip("bot", f"{path} {sha}", expected=True)
            elif (time := _time(seconds)) is None:
                yield Skip("unreadable time", f"{path} {sha}")
            elif text := _text(message, self.max_characters):
                yield Post(user, text, time, sha)
            else:
                yield Skip("no text", f"{path} {sha}", expected=True)

    def _check(self, path: str) -> None:
        """Raise an error where ``path`` cannot be read at all or has no commit."""
        command = ["rev-parse", "--quiet", "--verify", f"{self.branch}^{{commit}}"]
        with _git(path, command) as (process, errors):
            process.communicate()
            if process.returncode == 0:
                return
            reason = _first_line(errors)
        if reason:
            raise FirehoseError(f"Git cannot read {path}: {reason}.")
        branch = "its current branch" if self.branch == "HEAD" else repr(self.branch)
        raise FirehoseError(f"{path} has no commits on {branch}: set another branch.")

    def _author(self, name: str, email: str) -> str | None:
        """What an author is called; None for a bot."""
        plain = f"{name} <{email}>"
        if _BOT.search(plain.lower()) or _CAMEL_BOT.search(name):
            return None
        if self.authors == "plain":
            return plain
        address = (email.strip() or name).lower().encode()
        return hashlib.blake2b(address, digest_size=8, key=self.key.encode()).hexdigest()


def _is_repository(path: Path) -> bool:
    return (path / ".git").exists() or (
        (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    )


def _repositories(path: Path) -> list[Path]:
    """``path`` if it is a repository, else the repositories in it."""
    try:
        if path.name == ".git" and _is_repository(path.parent):
            return [path.parent]  # the work tree, for its .mailmap
        if _is_repository(path):
            return [path]
        return [each for each in sorted(path.iterdir()) if _is_repository(each)]
    except OSError:
        return []


@contextlib.contextmanager
def _git(path: str, command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Run git, with an output that depends only on the repository; yields it and its stderr."""
    # With --git-dir, as git would otherwise search the parent folders for a repository.
    inner = Path(path) / ".git"
    program = ["git", f"--git-dir={inner if inner.exists() else path}", *_SETTINGS]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    with tempfile.TemporaryFile() as errors:  # not a pipe, which could fill up and block git
        try:
            process = subprocess.Popen(
                program + command,
                cwd=path,  # git looks for .mailmap here
                env=clean | _ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            if not Path(path).is_dir():
                raise FirehoseError(f"{path} is not there any more: give a repository.") from None
            raise FirehoseError(
                f"Cannot run git, which the git source needs: {error.strerror}; install it."
            ) from None
        with process:  # closes the pipe and waits
            try:
                yield process, errors
            finally:
                process.kill()  # where the reader stopped early; else it has ended


def _first_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    first = _decode(errors.readline()).strip()
    return re.sub(r"^(?:fatal|error|warning): ", "", first).rstrip(".")


def _log(path: str, branch: str) -> Iterator[tuple[str, Sequence[bytes] | None]]:
    """The hash of each commit, and its parents, author time, name, e-mail and message.

    These are None where one of them is too long to be read.
    """
    with _git(path, [*_LOG, branch, "--"]) as (process, errors):
        assert process.stdout is not None
        found = lines(iter(partial(process.stdout.read, _BLOCK), b""), end=b"\0")
        while fields := [*islice(found, _FIELDS)]:
            kept = [field for field in fields if not isinstance(field, Overlong)]
            sha = _decode(kept[0]) if kept else ""
            if len(fields) < _FIELDS:
                break
            if not _HASH.fullmatch(sha):
                raise FirehoseError(f"Cannot make sense of git's log of {path}: run git fsck.")
            yield sha, kept[1:] if len(kept) == _FIELDS else None
        if process.wait() != 0:
            reason = _first_line(errors) or f"it ended with status {process.returncode}"
            raise FirehoseError(f"Git cannot read {path}: {reason}.")
        if fields:
            raise FirehoseError(f"Git's log of {path} ends in the middle: run git fsck.")


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _time(seconds: bytes) -> int | None:
    """Milliseconds since 1970, or None where it is not a time between 1970 and 2100."""
    try:
        number = int(seconds)
    except ValueError:
        return None
    return number * 1000 if 0 < number < _END_OF_TIME else None


def _text(message: str, limit: int) -> str:
    """The subject and the body's first paragraph in one line, without trailers and addresses."""
    message = message[:_LONGEST].replace("\r\n", "\n").strip()
    subject, *body = _PARAGRAPH.split(message, maxsplit=2)
    paragraphs = [subject, *body[:1]]
    if len(body) == 1 and ":" in body[0]:
        paragraphs[1] = _TRAILER.sub("", body[0])
    elif not body and "\n" in subject:
        first, newline, others = subject.partition("\n")
        paragraphs[0] = first + newline + _TRAILER.sub("", others)
    text = "\n".join(paragraphs)
    # Most texts need no substitution, and to look for one character is cheaper than to try.
    if ":" in text or "(cherry" in text:
        text = _KNOWN_TRAILER.sub("", text)
    if "@" in text:
        text = _MAIL.sub("", text)
    words = text.split()
    if max(map(len, words), default=0) >= 40:
        words = [_FULL_HASH.sub("<hash>", word) for word in words]
    text = " ".join(words)
    if len(text) <= limit:
        return text
    if text[limit] == " ":
        return text[:limit]
    return text[:limit].rpartition(" ")[0] or text[:limit]
