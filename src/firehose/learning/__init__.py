"""Training, scoring, and the game."""
