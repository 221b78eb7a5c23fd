"""Files and folders that appear whole, checksums, locks, tensors and checkpoints."""
