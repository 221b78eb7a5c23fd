"""A service that learns while it serves: an inbox, a process that learns, a process that answers.

::

    state/
      serve.json        what is served, and how it learns; it appears when the state is whole
      vocabulary.model  SentencePiece
      inbox.sqlite      every accepted post, and which round each is in
      checkpoints/      the state of the game, the newest two, with the position in the inbox
      snapshots/        models as they are published, the newest two

What is accepted is on disk before the answer. What is in a round is on disk before the round is
played. So a learner that was killed plays the same rounds again from its last checkpoint.
"""
