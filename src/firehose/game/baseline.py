"""What a stream costs compressors and memories alone: a yardstick beside the game.

A compressor's price of the stream is the bits for pretraining text and stream, less the bits for
the pretraining text, over the words of the stream. It knows no users. The text is that of the
corpus as its pieces spell it, one post a line.
"""

import json
import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from firehose.data.corpus import Corpus, Split, open_corpus
from firehose.game.assembly import past_of
from firehose.game.compressors import COMPRESSORS
from firehose.game.settings import make_settings
from firehose.methods.experts.mixture import Mixture
from firehose.methods.step import Setup
from firehose.progress import say, track
from firehose.report.tables import Table
from firehose.storage.files import write_whole
from firehose.storage.seals import Record

FILE = "baseline.json"  # in the folder of a corpus
AT_ONCE = 4096  # posts whose text is made at once
ROUND = make_settings("laptop").play.posts  # that memories pay for before they learn from them
MEMORIES = "memories alone"


class Price(Record):
    """What the stream cost one predictor."""

    name: str
    bits: float
    perplexity: float  # per word
    seconds: float
    is_simple: bool = False  # for tables, not for figures


class Baseline(Record):
    """What the stream of a corpus cost predictors that are no models."""

    format: Literal["firehose baseline"] = "firehose baseline"
    corpus: str  # the seal of the corpus
    words: int  # of the stream, <EOT> included
    prices: list[Price]

    def table(self) -> Table:
        """The table that shows the prices."""
        rows = [
            [price.name, f"{price.perplexity:.1f}", f"{price.bits / self.words:.3f}",
             f"{price.seconds:,.0f}"]
            for price in self.prices
        ]  # fmt: skip
        return Table(["", "online, per word", "bits a word", "seconds"], rows)

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


def baseline(corpus: Corpus | str | Path, out: str | Path | None = None) -> Baseline:
    """Price the stream of a corpus by compressors and by memories alone.

    The result is written to ``out``, or into the folder of the corpus, where reports look for it.
    """
    opened = open_corpus(corpus)
    stream = opened.splits["train"]
    words = int(stream.words.sum(dtype="int64"))
    prices = []
    for compressor in COMPRESSORS:
        if not compressor.is_installed():
            say(f"{compressor.name} is not installed, so it is left out.")
            continue
        begun = time.monotonic()
        bits = compressor.bits(_text(opened, ["pretrain", "train"], compressor.name))
        if len(opened.splits.get("pretrain", ())):
            bits -= compressor.bits(_text(opened, ["pretrain"], f"{compressor.name}, past"))
        prices.append(_price(compressor.name, bits, words, begun, compressor.is_simple))
    begun = time.monotonic()
    prices.append(_price(MEMORIES, memory_bits(opened), words, begun))
    found = Baseline(corpus=opened.seal(), words=words, prices=prices)
    write_whole(Path(out) if out else opened.path / FILE, found.to_json().encode())
    return found


def read_baseline(corpus: Corpus) -> Baseline | None:
    """The baseline in the folder of a corpus; None where there is none, or it is another's."""
    file = corpus.path / FILE
    try:
        found = Baseline.model_validate_json(file.read_bytes()) if file.is_file() else None
    except ValidationError:
        found = None
    if found is not None and found.corpus == corpus.seal():
        return found
    if file.is_file():
        say(f"{file} belongs to another corpus; make it again with `firehose baseline`.")
    return None


def _price(name: str, bits: float, words: int, begun: float, is_simple: bool = False) -> Price:
    return Price(
        name=name,
        bits=bits,
        perplexity=2 ** (bits / words),
        seconds=time.monotonic() - begun,
        is_simple=is_simple,
    )


def _text(corpus: Corpus, names: Iterable[str], doing: str) -> Iterator[bytes]:
    """The posts of some splits, one a line, many lines at a time."""
    splits = [corpus.splits[name] for name in names if name in corpus.splits]
    blocks = [(split, start) for split in splits for start in range(0, len(split), AT_ONCE)]
    for split, start in track(blocks, len(blocks), doing):
        yield _lines(corpus, split, start)


def _lines(corpus: Corpus, split: Split, start: int) -> bytes:
    batch = split.between(start, min(start + AT_ONCE, len(split)))
    texts = corpus.vocabulary.decode_posts(batch.tokens, batch.offsets)
    return "".join(f"{text}\n" for text in texts).encode()


class _NoModel(NamedTuple):
    """What a mixture without a model needs of one."""

    pieces: int


def memory_bits(corpus: Corpus) -> float:
    """What the stream costs a mixture of memories without any model, in bits.

    Memories know the posts before the stream, and who writes.
    """
    settings = Mixture.Settings.of({"kind": "mixture", "weight_sets": 0}, "the memories")
    mixture = Mixture(settings, Setup(_NoModel(corpus.vocabulary.size)), ())
    mixture.prime(past_of(corpus))
    nats = 0.0
    stream = corpus.stream(ROUND)
    for batch in track(stream, len(stream), MEMORIES):
        nats += float(mixture.pay(batch).nats.sum())
        mixture.learn(batch)
    return nats / math.log(2)
