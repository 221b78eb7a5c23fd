"""Text of a user: decoding, sampling, beam search, suggestions."""
