"""Models that write with few pieces, so that all they can say can be enumerated."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from firehose.data.encoder import Encoder
from firehose.data.registry import UserRegistry
from firehose.data.vocabulary import Vocabulary
from firehose.generation.decoding import Decoder
from firehose.models.personal import Architecture, ModelPlan, Personal
from firehose.models.store import Trained
from small_models import TINY, awake

WORDS = "the a of to and house home mouse water walking talking runs running 😀 #tag @me"
VOCABULARY = Vocabulary.train([(word, 100 - n) for n, word in enumerate(WORDS.split())])
EOT = VOCABULARY.eot
ID = {VOCABULARY._processor.id_to_piece(n): n for n in range(VOCABULARY.size)}
BEGIN, CONTINUE = ("▁", "▁the", "▁a", "▁home"), ("a", "me", "m", "e", "<URL>", "<0x61>")
FORBIDDEN = ("<unk>", "<SOT>", "<0x1B>")
NAMES = [f"user{number}" for number in range(9)]
PROMPT = "the house"


def trained(
    seed: int = 0, architecture: Architecture = "adapters", ends: float = 0.0, loud: float = 0.2
) -> Trained:
    """A random model of few pieces, so that all it can say can be enumerated."""
    plan = ModelPlan(architecture=architecture, shape=TINY, d_user=4, mlp=8, max_tokens=9)
    torch.manual_seed(seed)
    model = awake(Personal(plan, VOCABULARY.size))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=loud)
    nn.init.constant_(model.shared.output_bias, -40)
    for piece in BEGIN + FORBIDDEN:
        nn.init.zeros_(model.shared.output_bias[ID[piece]])
    for piece in CONTINUE:
        nn.init.constant_(model.shared.output_bias[ID[piece]], -4)
    nn.init.constant_(model.shared.output_bias[EOT], ends)
    return Trained(model.eval(), Encoder(VOCABULARY), UserRegistry(NAMES))


def prompt_tokens(prompt: str) -> tuple[int, ...]:
    return tuple(VOCABULARY.encode([prompt])[0][:-1].tolist())


def ahead(model: Trained, texts: list[tuple[int, ...]], user: int) -> Tensor:
    """The log-probabilities after texts of one length, ``[texts, pieces]``, read at once."""
    return Decoder(model.model, user, len(texts)).advance(torch.tensor(texts)).double()


def levels(
    model: Trained, user: int, first: list[str], later: list[str], least: float
) -> Iterator[tuple[list[tuple[int, ...]], Tensor, Tensor]]:
    """All that can be written after the prompt, one piece longer each time.

    The texts, their log-probabilities, and the log-probabilities of what comes after each; what is
    less probable than ``least`` is left out.
    """
    start = prompt_tokens(PROMPT)
    texts, scores = [start], torch.zeros(1, dtype=torch.float64)
    pieces = torch.tensor([ID[piece] for piece in first])
    while texts:
        after = ahead(model, texts, user)
        yield [text[len(start) :] for text in texts], scores, after
        longer = (scores[:, None] + after[:, pieces]).exp()
        kept = (longer >= least).nonzero().tolist()
        texts = [(*texts[row], int(pieces[place])) for row, place in kept]
        scores = torch.tensor([longer[row, place] for row, place in kept]).log()
        pieces = torch.tensor([ID[piece] for piece in later])
