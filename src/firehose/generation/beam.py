"""Beam search: the most probable texts that a search of limited width meets."""

from heapq import nsmallest

import torch

from firehose.generation.prompt import ReadPrompt
from firehose.generation.sampling import GREEDY, NEVER, Draft, draw


def search(prompt: ReadPrompt, beam: int, count: int, max_tokens: int) -> list[Draft]:
    """The ``count`` most probable continuations that a search of width ``beam`` meets.

    The greedy one counts as met. The best comes first; each has up to ``max_tokens`` tokens with
    those of the prompt.
    """
    eot, pieces = prompt.vocabulary.eot, prompt.vocabulary.size
    # A beam can lose the greedy text on the way, so that is written first.
    found = {draft.tokens: draft for draft in draw(prompt, GREEDY, max_tokens, 1)}
    texts: list[tuple[int, ...]] = [()]
    scores = torch.zeros(1, dtype=torch.float64)  # [rows], log-probabilities
    log_probs = prompt.restart(1)
    for left in reversed(range(max_tokens - len(prompt.tokens))):
        # [rows, pieces]
        total = scores[:, None] + log_probs.masked_fill(prompt.pieces.never, NEVER)
        ends = zip(texts, total[:, eot].tolist(), strict=True)
        met = [Draft((*text, eot), -score, True) for text, score in ends]
        total[:, eot] = NEVER
        scores, places = total.flatten().topk(min(beam, int(total.isfinite().sum())))
        rows, chosen = places // pieces, places % pieces  # [rows] each
        texts = [
            (*texts[row], piece) for row, piece in zip(rows.tolist(), chosen.tolist(), strict=True)
        ]
        if not left:
            cut = zip(texts, scores.tolist(), strict=True)
            met += [Draft(text, -score, False) for text, score in cut]
        for draft in met:
            found.setdefault(draft.tokens, draft)
        best = nsmallest(count, found.values(), key=lambda draft: draft.nats)
        # A text only becomes less probable when it goes on.
        if not left or (len(best) == count and best[-1].nats <= -float(scores[0])):
            break
        prompt.decoder.keep(rows)
        log_probs = prompt.decoder.advance(chosen[:, None])
    return best
