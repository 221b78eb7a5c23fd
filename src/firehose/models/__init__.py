"""The language models."""

import os

# A thread that waits for another must not keep a core busy: on a machine that does anything else
# at the same time, spinning threads make a step several times slower. Read when torch starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
