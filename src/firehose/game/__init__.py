"""The game: the round, a run in a folder, and what came of it."""
