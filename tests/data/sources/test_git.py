"""Commits as posts, from small repositories made for each test."""

import hashlib
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from firehose.data.post import Post, Skip
from firehose.data.sources.git import Git, _text
from firehose.errors import FirehoseError

ANN = ("Ann", "Ann@Example.org")
BOB = ("Bob", "bob@example.org")


class Repository:
    """A repository that no configuration outside it touches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = 1_400_000_000
        path.mkdir(parents=True)
        self.git("init", "-q", "--initial-branch=main")

    def git(self, *command: str, stdin: bytes = b"", **extra: str) -> str:
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_COMMITTER_NAME": "Committer",
            "GIT_COMMITTER_EMAIL": "committer@example.org",
            "GIT_COMMITTER_DATE": "1500000000 +0000",
            **extra,
        }
        done = subprocess.run(
            ["git", *command],
            cwd=self.path,
            env=environment,
            input=stdin,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode().strip()

    def commit(self, message: str | bytes, author: tuple[str, str] = ANN, *more: str) -> str:
        self.clock += 60
        raw = message.encode() if isinstance(message, str) else message
        self.git(
            *("commit", "-q", "--allow-empty", "--allow-empty-message", "--cleanup=verbatim"),
            *("-F", "-", *more),
            stdin=raw,
            GIT_AUTHOR_NAME=author[0],
            GIT_AUTHOR_EMAIL=author[1],
            GIT_AUTHOR_DATE=f"{self.clock} +0200",
        )
        return self.git("rev-parse", "HEAD")

    def raw_commit(self, author_line: bytes, message: bytes = b"text") -> str:
        """A commit that git's own command would refuse to make."""
        tree = self.git("mktree").encode()
        data = b"tree %s\nauthor %s\ncommitter C <c@d.e> 1500000000 +0000\n\n%s" % (
            *(tree, author_line, message),
        )
        sha = self.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=data)
        self.git("update-ref", "refs/heads/main", sha)
        return sha


def read(source: Git) -> list[Post | Skip]:
    return [record for shard in source.shards() for record in source.read(shard)]


def posts(source: Git) -> list[Post]:
    return [record for record in read(source) if isinstance(record, Post)]


def reasons(source: Git) -> list[tuple[str, bool]]:
    return [(r.reason, r.expected) for r in read(source) if isinstance(r, Skip)]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


@pytest.fixture
def source(repository: Repository) -> Git:
    return Git(paths=(str(repository.path),))


def hashed(email: str, key: str = "firehose") -> str:
    return hashlib.blake2b(email.encode(), digest_size=8, key=key.encode()).hexdigest()


class TestPosts:
    def test_a_commit_is_a_post(self, repository: Repository, source: Git) -> None:
        first = repository.commit("Fix the\nparser\n\nIt  crashed\non é.\n\nMore detail.\n")
        second = repository.commit("Add a test", BOB)
        assert read(source) == [
            Post(hashed("bob@example.org"), "Add a test", 1_400_000_120_000, second),
            Post(
                hashed("ann@example.org"),
                "Fix the parser It crashed on é.",
                1_400_000_060_000,
                first,
            ),
        ]

    def test_the_key_decides_the_users_and_is_not_shown(self, repository: Repository) -> None:
        repository.commit("One")
        paths = (str(repository.path),)
        secret = Git(paths=paths, key="secret")
        assert [post.user for post in posts(secret)] == [hashed("ann@example.org", "secret")]
        assert posts(secret)[0].user != posts(Git(paths=paths))[0].user
        assert "secret" not in repr(secret) + secret.to_toml()
        assert "key" not in tomllib.loads(secret.to_toml())

    def test_plain_authors(self, repository: Repository) -> None:
        repository.commit("One")
        (post,) = posts(Git(paths=(str(repository.path),), authors="plain"))
        assert post.user == "Ann <Ann@Example.org>"

    @pytest.mark.parametrize("bare", [False, True])
    def test_mailmap(self, repository: Repository, tmp_path: Path, bare: bool) -> None:
        (repository.path / ".mailmap").write_text("Bob <bob@example.org> <old@example.org>\n")
        repository.git("add", ".mailmap")
        repository.commit("One", ("Bobby", "old@example.org"))
        path = repository.path
        if bare:
            path = tmp_path / "bare.git"
            repository.git("clone", "-q", "--bare", ".", str(path))
        assert [post.user for post in posts(Git(paths=(str(path),)))] == [hashed("bob@example.org")]

    def test_branch(self, repository: Repository) -> None:
        one = repository.commit("One")
        repository.git("branch", "old")
        repository.commit("Two")
        found = posts(Git(paths=(str(repository.path),), branch="old"))
        assert [post.id for post in found] == [one]

    def test_messages_with_separators_and_broken_bytes(
        self, repository: Repository, source: Git
    ) -> None:
        repository.raw_commit(b"A <a@b.c> 1400000000 +0000", b"one\x1e\x1f\x01 two \xff end")
        repository.commit("before")
        assert [post.text for post in posts(source)] == ["before", "one \x01 two \ufffd end"]

    def test_other_encodings(self, repository: Repository, source: Git) -> None:
        repository.git("config", "i18n.commitEncoding", "ISO-8859-1")
        repository.commit("grüße".encode("latin-1"))
        repository.git("config", "i18n.logOutputEncoding", "ISO-8859-1")
        assert [post.text for post in posts(source)] == ["grüße"]

    def test_many_commits_come_through_blocks(
        self, repository: Repository, source: Git, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("firehose.data.sources.git._BLOCK", 7)
        shas = [repository.commit(f"Commit number {number}") for number in range(5)]
        assert [post.id for post in posts(source)] == shas[::-1]

    def test_the_user_s_configuration_changes_nothing(
        self, repository: Repository, source: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        repository.commit("One")
        expected = read(source)
        hostile = tmp_path / "gitconfig"
        hostile.write_text("[log]\nshowSignature = true\nmailmap = false\n[color]\nui = always\n")
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(hostile))
        monkeypatch.setenv("GIT_DIR", "/nowhere")
        other = tmp_path / "mailmap"
        other.write_text("Eve <eve@example.org> <ann@example.org>\n")
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "mailmap.file")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(other))
        for name, value in (("log.showSignature", "true"), ("color.ui", "always")):
            repository.git("config", name, value)
        assert read(source) == expected

    def test_a_shallow_clone(self, repository: Repository, tmp_path: Path) -> None:
        repository.commit("One")
        two = repository.commit("Two")
        shallow = tmp_path / "shallow"
        url = repository.path.as_uri()
        repository.git("clone", "-q", "--depth=1", url, str(shallow))
        assert [post.id for post in posts(Git(paths=(str(shallow),)))] == [two]

    def test_stopping_early_leaves_no_process(
        self, repository: Repository, source: Git, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        repository.commit("One")
        repository.commit("Two")
        shard = source.shards()[0]
        started = []

        class Watched(subprocess.Popen[bytes]):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                started.append(self)

        monkeypatch.setattr(subprocess, "Popen", Watched)
        reader = source.read(shard)
        next(reader)
        assert isinstance(reader, Generator)
        reader.close()
        assert started
        for process in started:  # each was waited for, and is gone
            assert process.returncode is not None


class TestSkips:
    def test_merges(self, repository: Repository, source: Git) -> None:
        repository.commit("One")
        repository.git("checkout", "-q", "-b", "side")
        repository.commit("Two")
        repository.git("checkout", "-q", "main")
        repository.commit("Three")
        author = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b.c"}
        repository.git("merge", "-q", "-m", "Joined", "side", stdin=b"", **author)
        repository.commit("Merge pull request #3 from x/y\n\nTitle")  # squashed by hand
        repository.commit("Merge sort is faster")
        assert reasons(source) == [("merge commit", True)] * 2
        assert {post.text for post in posts(source)} == (
            {"One", "Two", "Three", "Merge sort is faster"}
        )

    @pytest.mark.parametrize(
        "author",
        [
            ("dependabot[bot]", "49699333+dependabot[bot]@users.noreply.github.com"),
            ("Renovate", "x@whitesource.com"),
            ("github-actions", "a@b.c"),
            ("Hosted Weblate", "hosted@weblate.org"),
            ("pre-commit-ci", "a@b.c"),
            ("skia-autoroll", "a@b.c"),
            ("x", "project-bot@b.c"),
            ("BrewTestBot", "a@b.c"),
            ("k8s-ci-robot", "a@b.c"),
            ("Some", "noreply@example.org"),
        ],
    )
    def test_bots(self, repository: Repository, source: Git, author: tuple[str, str]) -> None:
        repository.commit("Bump x from 1 to 2", author)
        assert reasons(source) == [("bot", True)]

    @pytest.mark.parametrize(
        "author",
        [
            ("Ann Talbot", "talbot@b.c"),
            ("Bob Abbot", "a@b.c"),
            ("Ann", "123+ann@users.noreply.github.com"),
        ],
    )
    def test_people(self, repository: Repository, source: Git, author: tuple[str, str]) -> None:
        repository.commit("Bump x from 1 to 2", author)
        assert reasons(source) == []

    def test_no_text(self, repository: Repository, source: Git) -> None:
        repository.commit("Signed-off-by: Ann <a@b.org>")
        repository.commit("")
        assert reasons(source) == [("no text", True)] * 2

    @pytest.mark.parametrize("seconds", [b"-5", b"0", b"4102444800", b"99999999999999999999", b"x"])
    def test_absurd_times(self, repository: Repository, source: Git, seconds: bytes) -> None:
        sha = repository.raw_commit(b"A <a@b.c> %s +0000" % seconds)
        (record,) = read(source)
        assert record == Skip("unreadable time", f"{repository.path} {sha}")

    def test_the_last_readable_second(self, repository: Repository, source: Git) -> None:
        repository.raw_commit(b"A <a@b.c> 4102444799 +0000")
        assert [post.time for post in posts(source)] == [4_102_444_799_000]


class TestText:
    @pytest.mark.parametrize(
        ("message", "expected"),
        [
            ("Subject\n\nBody.\n\nSigned-off-by: A <a@b.org>\n", "Subject Body."),
            ("Subject\n\nChange-Id: I1\nX-Strange-Token: v\n  continued\n", "Subject"),
            ("Subject\nSigned-off-by: A <a@b.org>", "Subject"),
            ("Subject\n\nCo-authored-by: A <a@b.org>\n\nMore", "Subject"),
            ("Subject\n\ngit-svn-id: svn://x@12 91177308", "Subject"),
            ("Subject\n\n(cherry picked from commit 123)", "Subject"),
            ("Subject\n\nReviewed-on: https://x.org/1\nFixes: #12", "Subject"),
            ("x-ray: new", "x-ray: new"),
            ("test: more cases", "test: more cases"),
            (
                "sort-by: mend\n\nSome-Thing: in the middle\n\nEnd",
                "sort-by: mend Some-Thing: in the middle",
            ),
            ("Thank ann@example.org and <b@c> for react@18.2.0", "Thank and for react@18.2.0"),
            ("Revert " + "0a" * 20 + ".", "Revert <hash>."),
            ("Revert " + "0a" * 32, "Revert <hash>"),
            ("Keep " + "0a" * 19, "Keep " + "0a" * 19),
            ("One\r\n\r\nTwo\r\n", "One Two"),
            ("\n\n  One\t two \n \n three", "One two three"),
            ("", ""),
        ],
    )
    def test_what_is_kept(self, message: str, expected: str) -> None:
        assert _text(message, 280) == expected

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [(3, "one"), (4, "one"), (6, "one"), (7, "one two"), (8, "one two"), (2, "on")],
    )
    def test_cut_at_a_word(self, limit: int, expected: str) -> None:
        assert _text("one two three", limit) == expected

    def test_the_limit_is_the_source_s(self, repository: Repository) -> None:
        repository.commit("one two three")
        (post,) = posts(Git(paths=(str(repository.path),), max_characters=8))
        assert post.text == "one two"


class TestPaths:
    def test_work_tree_bare_and_folder(self, repository: Repository, tmp_path: Path) -> None:
        sha = repository.commit("One")
        folder = tmp_path / "folder"
        repository.git("clone", "-q", "--bare", ".", str(folder / "b.git"))
        repository.git("clone", "-q", ".", str(folder / "a"))
        (folder / "notes").mkdir()
        for path in (repository.path, repository.path / ".git", folder / "b.git", folder):
            assert Git.recognises(path)
        shards = Git(paths=(str(folder), str(folder / "a"))).shards()
        assert shards == [{"path": str(folder / "a")}, {"path": str(folder / "b.git")}]
        assert [post.id for post in posts(Git(paths=(str(folder),)))] == [sha, sha]

    def test_a_folder_inside_a_repository_is_not_the_repository(
        self, repository: Repository
    ) -> None:
        repository.commit("One")
        inside = repository.path / "inside"
        inside.mkdir()
        assert not Git.recognises(inside)
        with pytest.raises(FirehoseError, match="neither a git repository nor a folder"):
            Git(paths=(str(inside),)).shards()

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.touch()
        for path in (tmp_path / "none", file):
            assert not Git.recognises(path)
            with pytest.raises(FirehoseError, match="neither a git repository"):
                Git(paths=(str(path),)).shards()
        with pytest.raises(FirehoseError, match="no paths"):
            Git().shards()

    def test_no_commits(self, repository: Repository, source: Git) -> None:
        with pytest.raises(FirehoseError, match=r"repository has no commits on its current branch"):
            source.shards()
        with pytest.raises(FirehoseError, match=r"Git cannot read .*: bad revision"):
            list(source.read({"path": str(repository.path)}))

    def test_no_such_branch(self, repository: Repository) -> None:
        repository.commit("One")
        with pytest.raises(FirehoseError, match="no commits on 'nope'"):
            Git(paths=(str(repository.path),), branch="nope").shards()

    def test_a_broken_repository_is_not_the_one_around_it(self, repository: Repository) -> None:
        repository.commit("One")
        broken = repository.path / "broken"
        (broken / ".git").mkdir(parents=True)
        with pytest.raises(
            FirehoseError, match=r"Git cannot read .*broken: .*not a git repository"
        ):
            Git(paths=(str(broken),)).shards()

    def test_git_fails_midway(self, repository: Repository, source: Git) -> None:
        first = repository.commit("One")
        second = repository.commit("Two")
        objects = repository.path / ".git" / "objects"
        (objects / first[:2] / first[2:]).unlink()
        reader = source.read(source.shards()[0])
        found = []
        with pytest.raises(FirehoseError, match=r"^Git cannot read .*: .*\.$"):
            for record in reader:
                found.append(record)  # noqa: PERF402
        assert [record.id for record in found if isinstance(record, Post)] in ([], [second])

    def test_git_is_missing(
        self, repository: Repository, source: Git, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        repository.commit("One")
        shard = source.shards()[0]
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(FirehoseError, match="Cannot run git"):
            list(source.read(shard))

    def test_the_repository_is_gone(self, repository: Repository, source: Git) -> None:
        repository.commit("One")
        shard = source.shards()[0]
        shutil.rmtree(repository.path)
        with pytest.raises(FirehoseError, match="not there any more"):
            list(source.read(shard))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"branch": "--output=x"}, "the name of a branch"),
        ({"key": "k" * 65}, "at most 64 bytes"),
        ({"authors": "clear"}, "'hashed' or 'plain'"),
    ],
)
def test_wrong_values(values: dict[str, str], message: str) -> None:
    # Section.read, which Source.read hides.
    with pytest.raises(ValidationError, match=re.escape(message)):
        Git.model_validate(values)


def test_a_message_that_would_fill_the_memory_is_skipped(tmp_path: Path) -> None:
    made = Repository(tmp_path / "a")
    first = made.commit("before")
    long = made.commit("x" * (5 << 20))
    last = made.commit("after")
    found = read(Git(paths=(str(made.path),)))
    assert [one.id if isinstance(one, Post) else one for one in found] == [
        last,
        Skip("too long", f"{made.path} {long}"),
        first,
    ]
