"""A real server of Bluesky on this machine, heard by a listener that is killed meanwhile.

    python benchmarks/bluesky.py [--posts 1000] [--seed 0] [--modules DIR]

Installs `@atproto/pds` and `@did-plc/server` with npm (node 20 or newer), in a temporary folder or
in --modules, where they stay. Several accounts write posts, replies and posts in German; some posts
are deleted, and one account. `firehose listen bluesky --protocol repos` brings what it hears to a
small service that learns from it, and is killed (SIGKILL) and started again while it works. At the
end the inbox must hold exactly the posts that remain. Prints figures; ends with status 1 where it
does not, or where there was no time for a kill. Nothing but npm's packages comes from elsewhere.
"""

import argparse
import base64
import json
import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from conftest import prepared, simple_posts
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.people import Book
from firehose.serving.service import Service, ServiceSettings, running
from small_services import begun, posts

PACKAGES = ("@atproto/pds@0.4.217", "@did-plc/server@0.0.1")
SETTINGS = ServiceSettings(port=0, round_posts=32, round_seconds=2.0, checkpoint_every=10.0)
ACCOUNTS = 6
COLLECTION = "app.bsky.feed.post"
PATIENCE = 900.0  # seconds for whatever is waited for, on a machine that is busy
GERMAN = "Das ist ein ganz gewöhnlicher Satz, und keiner von ihnen ist englisch."


class Account(NamedTuple):
    """Somebody who writes."""

    did: str
    token: str


class Key(NamedTuple):
    """What a post is called."""

    user: str
    id: str


class Pds:
    """A server of Bluesky, asked over HTTP."""

    def __init__(self, port: int, password: str) -> None:
        self.port = port
        self.admin = f"Basic {base64.b64encode(f'admin:{password}'.encode()).decode()}"

    def ask(self, method: str, body: dict[str, Any], authorization: str = "") -> Any:
        """Call a method, such as com.atproto.repo.createRecord."""
        head = {"content-type": "application/json"}
        head |= {"authorization": authorization} if authorization else {}
        url = f"http://127.0.0.1:{self.port}/xrpc/com.atproto.{method}"
        request = urllib.request.Request(url, json.dumps(body).encode(), head)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or b"{}")

    def join(self, name: str) -> Account:
        """A new account."""
        told = {"handle": f"{name}.test", "email": f"{name}@example.org", "password": name}
        made = self.ask("server.createAccount", told)
        return Account(made["did"], f"Bearer {made['accessJwt']}")

    def write(self, account: Account, text: str, language: str = "en", **more: Any) -> Key:
        """Write a post."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        record = {"$type": COLLECTION, "text": text, "langs": [language], "createdAt": moment}
        body = {"repo": account.did, "collection": COLLECTION, "record": record | more}
        uri = self.ask("repo.createRecord", body, account.token)["uri"]
        return Key(account.did, uri.rpartition("/")[2])

    def delete(self, account: Account, key: str) -> None:
        """Delete a post."""
        body = {"repo": account.did, "collection": COLLECTION, "rkey": key}
        self.ask("repo.deleteRecord", body, account.token)

    def remove(self, account: Account) -> None:
        """Delete an account."""
        self.ask("admin.deleteAccount", {"did": account.did}, self.admin)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait_until(is_over: Callable[[], bool], what: str) -> None:
    """Wait, but not for ever."""
    end = time.monotonic() + PATIENCE
    while not is_over():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)


def install(modules: Path) -> None:
    """Install both servers, if they are not there."""
    if (modules / "node_modules" / "@atproto" / "pds").is_dir():
        return
    modules.mkdir(parents=True, exist_ok=True)
    (modules / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES]
    subprocess.run(command, cwd=modules, check=True, stdout=sys.stderr)


@contextmanager
def serving(modules: Path, folder: Path) -> Iterator[Pds]:
    """Both servers for as long as the block lasts; they send no mail and ask nobody else."""
    port, directory, password = free_port(), free_port(), secrets.token_hex(16)
    (folder / "data").mkdir()
    told = {
        "PDS_HOSTNAME": "localhost",  # so that handles end in .test, and are looked up nowhere
        "PDS_PORT": str(port),
        "PDS_DATA_DIRECTORY": str(folder / "data"),
        "PDS_BLOBSTORE_DISK_LOCATION": str(folder / "blobs"),
        "PDS_DID_PLC_URL": f"http://127.0.0.1:{directory}",
        "PDS_PLC_ROTATION_KEY_K256_PRIVATE_KEY_HEX": secrets.token_hex(32),
        "PDS_DPOP_SECRET": secrets.token_hex(32),
        "PDS_JWT_SECRET": secrets.token_hex(32),
        "PDS_ADMIN_PASSWORD": password,
        "PDS_INVITE_REQUIRED": "0",
        "PDS_DEV_MODE": "1",
        "LOG_ENABLED": "false",
    }
    script = Path(__file__).with_name("bluesky_server.js")
    with subprocess.Popen(
        ["node", str(script), str(modules), str(directory)],
        env=os.environ | told,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("The server of Bluesky does not start.")
            yield Pds(port, password)
        finally:
            process.kill()


class Listener:
    """`firehose listen bluesky`, which can be killed and started again."""

    def __init__(self, address: str, port: int, cursor: Path) -> None:
        self.cursor = cursor
        self.command = [sys.executable, "-m", "firehose", "listen", "bluesky", "--into", address]
        self.command += ["--protocol", "repos", "--url", f"ws://127.0.0.1:{port}"]
        self.command += ["--cursor", str(cursor)]
        self.start()

    def start(self) -> None:
        """Start the process."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)

    def kill(self) -> None:
        """Kill it, whatever it does."""
        self.process.kill()
        self.process.communicate()

    def end(self) -> str:
        """Let it end as it should; returns what it says about all that it heard."""
        self.process.terminate()
        return self.process.communicate(timeout=PATIENCE)[0].strip()


class Writers:
    """Accounts that write and delete; ``remaining`` is what the inbox must have at the end."""

    def __init__(self, pds: Pds, accounts: list[Account], chance: random.Random) -> None:
        self.pds, self.accounts, self.chance = pds, accounts, chance
        self.remaining: dict[Key, str] = {}
        self.counts = Counter[str]()

    def write(self, count: int) -> None:
        """Write so many posts; one account goes on the way."""
        by_did = {account.did: account for account in self.accounts}
        for number, made in enumerate(posts(count)):
            if number == 2 * count // 3:
                self._go(self.accounts.pop())
            account, text = self.chance.choice(self.accounts), f"{made.text} {number}"
            key = self.pds.write(account, text)
            self.remaining[key] = text
            self.counts["posts written"] += 1
            if self.chance.random() < 0.1:
                self._write_other(account, key)
            if self.chance.random() < 0.15:
                gone = self.chance.choice(list(self.remaining))
                self.pds.delete(by_did[gone.user], gone.id)
                del self.remaining[gone]
                self.counts["posts deleted"] += 1

    def _write_other(self, account: Account, key: Key) -> None:
        """Write something that is not to be heard."""
        link = {"uri": f"at://{key.user}/{COLLECTION}/{key.id}", "cid": LINK}
        reply = {"root": link, "parent": link}
        self.pds.write(account, "Nobody is to hear this.", reply=reply)
        self.pds.write(account, GERMAN, "de")
        self.counts["replies and posts in German"] += 2

    def _go(self, account: Account) -> None:
        self.pds.remove(account)
        kept = {k: text for k, text in self.remaining.items() if k.user != account.did}
        self.counts["posts of the deleted account"] = len(self.remaining) - len(kept)
        self.remaining = kept


LINK = "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a"  # of any record


def join_heard(pds: Pds, listener: Listener) -> list[Account]:
    """Accounts, the last of which was heard: from then on nothing is missed."""
    accounts: list[Account] = []
    end = time.monotonic() + PATIENCE
    while len(accounts) < ACCOUNTS or not listener.cursor.exists():
        accounts.append(pds.join(f"user{len(accounts)}"))
        time.sleep(1.0)
        if time.monotonic() > end:
            raise TimeoutError("the listener hears nothing")
    return accounts[-ACCOUNTS:]


def disturb(listener: Listener, writers: Writers, writing: threading.Thread, count: int) -> int:
    """Kill the listener while it works and posts are written, now and then; returns how often.

    Posts are written while it is away, and it is not killed again before it has heard some.
    """
    kills, written = 0, writers.counts
    for moment in range(count // 5, count, count // 5):
        wait_until(lambda: written["posts written"] >= moment, "writing")  # noqa: B023
        if not writing.is_alive():
            break
        listener.kill()
        kills, before = kills + 1, listener.cursor.read_bytes()
        wait_until(lambda: written["posts written"] >= moment + count // 20, "writing")  # noqa: B023
        listener.start()
        wait_until(lambda: listener.cursor.read_bytes() != before, "the listener")  # noqa: B023
    return kills


def heard(inbox: Inbox) -> dict[Key, str]:
    """The posts in the inbox."""
    rows = inbox.database.rows("SELECT user, id, text FROM posts")
    return {Key(user, ident): text for user, ident, text in rows}


def play(pds: Pds, service: Service, inbox: Inbox, arguments: Any) -> tuple[Writers, str]:
    """Write, disturb, and wait until all was heard; returns what the listener says at its end."""
    cursor = inbox.database.path.with_name("cursor")
    listener = Listener(service.address, pds.port, cursor)
    accounts = join_heard(pds, listener)
    writers = Writers(pds, accounts, random.Random(arguments.seed))
    writing = threading.Thread(target=writers.write, args=[arguments.posts], daemon=True)
    writing.start()
    writers.counts["kills of the listener"] = disturb(listener, writers, writing, arguments.posts)
    service.look_after_until(lambda: not writing.is_alive())
    last = pds.write(accounts[0], "the quick brown fox")  # heard after all that came before it
    writers.remaining[last] = "the quick brown fox"
    wait_until(lambda: last in heard(inbox), "the last post")
    wait_until(lambda: not inbox.has_requests() and not inbox.waiting(), "the learner")
    return writers, listener.end()


def main() -> None:
    """Install, serve, write, listen, kill, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--posts", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="who writes, and what is deleted")
    parser.add_argument("--modules", type=Path, help="where npm's packages are, or are put")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        modules = (arguments.modules or folder / "modules").absolute()
        install(modules)
        began, state = time.monotonic(), begun(folder, prepared(folder, simple_posts()))
        inbox = Inbox(state / FILE)
        with serving(modules, folder) as pds, running(None, state, SETTINGS) as service:
            writers, told = play(pds, service, inbox, arguments)
        found, totals = heard(inbox), Book(inbox.database).totals()
        inbox.close()
    missing = writers.remaining.keys() - found.keys()
    strange = found.keys() - writers.remaining.keys()
    changed = [key for key in found.keys() - strange if found[key] != writers.remaining[key]]
    figures = {
        **writers.counts,
        "posts that remain": len(writers.remaining),
        "posts in the inbox": len(found),
        "missing": len(missing),
        "too many": len(strange),
        "changed": len(changed),
        "rounds learned meanwhile": totals.rounds,
        "seconds": round(time.monotonic() - began),
    }
    print(*(f"{value:8,}  {what}" for what, value in figures.items()), sep="\n")
    print(f"The listener, since it was started last: {told}")
    is_disturbed = writers.counts["kills of the listener"] > 0  # else it shows too little
    sys.exit(bool(missing or strange or changed or not is_disturbed))


if __name__ == "__main__":
    main()
