"""What went wrong that is no defect of ours: the system's faults, and those of a user's own code.

Everything else that is raised shows its traceback.
"""

import errno
import linecache
import os
import re
import sysconfig
import traceback
from pathlib import Path

from firehose.plugins import brief, is_own

SHOWN = 8  # lines of the user's own code, the innermost
SYSTEM = {  # what to say of a path, and what to do
    errno.ENOSPC: ("the disk is full", "make room, and give the command again"),
    errno.EDQUOT: ("your share of the disk is used up", "make room, and give the command again"),
    errno.EROFS: ("nothing can be written on this file system", "choose another folder"),
    errno.EACCES: ("you lack the permission", "change it, or choose another folder"),
    errno.EPERM: ("you lack the permission", "change it, or choose another folder"),
    errno.ENOTDIR: ("there is a file where a folder should be", "choose another path"),
    errno.EISDIR: ("there is a folder where a file should be", "choose another path"),
    errno.EEXIST: ("something else is there already", "choose another path"),
    errno.ENOTEMPTY: ("something else is there already", "choose another path"),
    errno.ENOENT: ("it does not exist", "look at the path again"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
    errno.ELOOP: ("its links lead in a circle", "choose another path"),
    errno.EMFILE: ("too many files are open", "allow more with `ulimit -n 4096`"),
    errno.ENFILE: ("too many files are open", "end other programs"),
    errno.ENOMEM: ("there is not enough memory", "use a smaller model or smaller batches"),
    errno.EIO: ("the disk cannot be read or written", "look after the disk"),
}


def told(error: BaseException, where: str | Path = "") -> str | None:
    """A sentence about a fault of the system or of the user's own code; None: it is our defect.

    ``where`` is what the command was at work on, for faults that name no path. Below the sentence
    are the lines of the user's own code that led there, if any.
    """
    if lines := own_lines(error):
        return "\n".join([f"{_file(lines[-1])} failed: {brief(error)}.", *lines])
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return f"{error.object!a} is not a name in UTF-8; rename what is called so."
    text = str(error)
    if isinstance(error, MemoryError) or _is_of_torch(error, text):
        more = f" ({text.splitlines()[0].rstrip('.')})" if text else ""
        return f"There is not enough memory{more}; use a smaller model or smaller batches."
    number, path = _system(error, text)
    if number is None:
        return None
    what, remedy = SYSTEM.get(number, (os.strerror(number), "mend that, and try again"))
    return f"{path or where or 'This'}: {what}; {remedy}."


def own_lines(error: BaseException) -> list[str]:
    """The lines of the user's own code that an error went through: place, function, code."""
    found: list[str] = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        name = str(frame.f_globals.get("__name__", ""))
        # What their code imports from elsewhere is theirs, too, but for libraries.
        if is_own(name) or (found and not _is_library(file)):
            code = linecache.getline(file, line).strip()
            found.append(f"  {file}, line {line}, in {frame.f_code.co_name}: {code}")
    return found[-SHOWN:]


def _file(line: str) -> str:
    return line.strip().partition(", line ")[0]


def _is_library(file: str) -> bool:
    homes = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    ours = str(Path(__file__).parent)
    return file.startswith(("<", ours, *homes))


def _is_of_torch(error: BaseException, text: str) -> bool:
    """Whether torch had no memory left, which it tells by an ordinary RuntimeError."""
    return isinstance(error, RuntimeError) and bool(
        re.search("allocate memory|out of memory", text)
    )


def _system(error: BaseException, text: str) -> tuple[int | None, str]:
    """The number of the system's error, and the path it names; libraries in Rust only tell it."""
    if isinstance(error, OSError):
        path = error.filename2 or error.filename
        name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        found = re.search(r"(?i)errno (\d+)", text)
        return error.errno or (int(found[1]) if found else None), name
    if text.startswith("Symlink loop"):  # as pathlib tells it
        return _system(error.__context__, text) if error.__context__ else (errno.ELOOP, "")
    found = re.search(r"\(os error (\d+)\)", text)
    return (int(found[1]) if found else None), ""
