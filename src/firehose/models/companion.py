"""What a model may have beside it on disk: the state of a predictor that knows more than weights.

::

    model/
      predictor.safetensors  the arrays of its state
      predictor.json         all else of it
      predictor.parquet      the names of the users of whom it keeps something, and their numbers
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from firehose.errors import FirehoseError
from firehose.storage import tensors
from firehose.storage.checkpoints import State, pack, unpack

ARRAYS, VALUES, USERS = "predictor.safetensors", "predictor.json", "predictor.parquet"


class Companion(NamedTuple):
    """A predictor as it is saved with its model."""

    settings: Mapping[str, Any]  # with its kind
    state: State
    users: Mapping[str, int]  # the numbers that users have in the state, by name

    def write(self, folder: Path) -> None:
        """Write its files into the folder of a model that is being made."""
        arrays, values = pack(self.state)
        tensors.write(folder / ARRAYS, arrays)
        (folder / VALUES).write_text(json.dumps(values) + "\n", encoding="utf-8")
        columns = {
            "user": pa.array(list(self.users), pa.string()),
            "number": pa.array(list(self.users.values()), pa.int64()),
        }
        pq.write_table(pa.table(columns), folder / USERS)

    @classmethod
    def read(cls, folder: Path, settings: Mapping[str, Any]) -> "Companion":
        """Read its files from the folder of a model, whose checksums were compared."""
        try:
            values = json.loads((folder / VALUES).read_text(encoding="utf-8"))
            users = pq.read_table(folder / USERS, columns=["user", "number"]).to_pydict()
            state = unpack(tensors.read(folder / ARRAYS), values)
        except (OSError, ValueError, KeyError):
            raise FirehoseError(
                f"{folder} is damaged: its predictor cannot be read; copy the model again."
            ) from None
        return cls(settings, state, dict(zip(users["user"], users["number"], strict=True)))
