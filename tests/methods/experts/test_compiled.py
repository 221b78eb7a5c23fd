"""What was compiled is kept, and made anew when any file that it came from has changed."""

import subprocess
import sys
from pathlib import Path

INNER = """
from firehose.methods.experts.compiled import compiled

@compiled
def inner(number):
    return number + {more}
"""
OUTER = """
from firehose.methods.experts.compiled import compiled
from inner import inner

@compiled
def outer(number):
    return inner(number)

if __name__ == "__main__":
    print(outer(1), sum(outer.stats.cache_hits.values()))
"""


def test_a_change_in_another_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text(OUTER)
    printed = []
    for more in (1, 1, 2):
        (tmp_path / "inner.py").write_text(INNER.format(more=more))
        command = [sys.executable, "outer.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        printed.append(done.stdout.split())
    assert printed == [["2", "0"], ["2", "1"], ["3", "0"]]
