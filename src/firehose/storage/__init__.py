"""Files that appear whole, seals that tell whether they are intact, locks, tensors."""
