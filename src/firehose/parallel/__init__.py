"""Processes that play one game together: each has all of the game, and a share of every batch."""
