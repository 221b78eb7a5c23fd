"""Raw files in the form that their sources have, made by us."""

import csv
import json
import random
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import zstandard

PEOPLE = ["ann", "bob", "cleo", "dan", "eve", "finn"]
OPENINGS = ["fix the", "please check", "nobody saw", "we broke", "it was", "look at"]
THINGS = ["login page", "red train", "garden wall", "old parser", "coffee machine", "night shift"]
ENDS = ["again today", "for the third time", "before lunch", "and it works now", "as you said"]
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


def sentence(person: int, number: int) -> str:
    """What a person writes: everybody has openings and things of their own."""
    chance = random.Random(1000 * person + number)
    own = chance.random() < 0.8
    opening = OPENINGS[person] if own else chance.choice(OPENINGS)
    thing = THINGS[person] if own else chance.choice(THINGS)
    return f"{opening} {thing} {chance.choice(ENDS)}"


def stream(each: int) -> list[tuple[str, datetime, str]]:
    """Posts of everybody in the order of time."""
    return [
        (name, BEGIN + timedelta(hours=7 * number + person), sentence(person, number))
        for number in range(each)
        for person, name in enumerate(PEOPLE)
    ]


def reddit_dump(path: Path, each: int = 30) -> Path:
    """A month of comments as Pushshift packs them, with some of nobody."""
    rows = [
        {"author": name, "created_utc": int(when.timestamp()), "body": text, "id": f"c{n}"}
        for n, (name, when, text) in enumerate(stream(each))
    ]
    gone = {"author": "[deleted]", "created_utc": 1_577_836_800, "body": "what I said"}
    rows += [gone | {"id": f"g{n}"} for n in range(40)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))
    return path


def tickets_csv(path: Path, each: int = 30) -> Path:
    """The export of a help desk: semicolons, and columns with names of their own."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter=";")
        table.writerow(["Ticket", "Agent", "Opened at", "Message"])
        for number, (name, when, text) in enumerate(stream(each)):
            table.writerow([number, name, when.isoformat(), text])
    return path


def mailbox(path: Path, each: int = 30) -> Path:
    """A mailing list: every second mail answers the one before, and quotes it."""
    mails, before = [], ""
    for number, (name, when, text) in enumerate(stream(each)):
        date = when.strftime("%a, %d %b %Y %H:%M:%S +0000")
        answers = number % 2
        subject = "Re: [list] so it is" if answers else f"[list] {text}"
        body = f"Somebody wrote:\n> {before}\n\n{text}\n-- \n{name}\n" if answers else f"{text}\n"
        mails.append(
            f"From {name}@example.org {when:%a %b %d %H:%M:%S %Y}\nFrom: {name}@example.org\n"
            f"Date: {date}\nSubject: {subject}\nMessage-ID: <{number}@example.org>\n\n{body}\n"
        )
        before = text
    path.write_text("".join(mails), encoding="utf-8")
    return path


def repository(path: Path, each: int = 8) -> Path:
    """A git history, one commit a post."""
    parts = ["blob\nmark :1\ndata 2\nx\n\n"]
    for number, (name, when, text) in enumerate(stream(each)):
        who, message = f"{name} <{name}@example.org> {int(when.timestamp())} +0000", f"{text}\n"
        parts.append(
            f"commit refs/heads/main\nauthor {who}\ncommitter {who}\n"
            f"data {len(message.encode())}\n{message}M 100644 :1 file{number}\n\n"
        )
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    history = "".join(parts).encode()
    subprocess.run(["git", "-C", str(path), "fast-import", "--quiet"], input=history, check=True)
    return path
