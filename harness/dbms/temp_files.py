"""Preallocation of a server's temporary files, by a library that the server loads.

The library is harness/core/preload/temp_files.c; what it does stands there. It comes with the
package, beside the compiled core.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness import _core
from harness.dbms.postgres import Preload
from harness.errors import BadParameter

LIBRARY: Final = Path(str(_core.__file__)).with_name("temp_files.so")
_BYTES: Final = "FLASHLAB_TEMP_FILE_BYTES"
_GIVE_BACK: Final = "FLASHLAB_TEMP_FILE_GIVE_BACK"


def preallocation(file_bytes: int, give_back: bool = False) -> Preload | None:
    """Every temporary file gets so many bytes at its creation, and keeps them until it is deleted.

    `give_back`: only until it is read for the first time; what it did not use by then is freed.
    0 bytes: None, files grow as they are written. Raises BadParameter.
    """
    if file_bytes < 0:
        raise BadParameter(f"preallocation_bytes {file_bytes}: 0 or more")
    if not file_bytes:
        return None
    settings = {_BYTES: str(file_bytes), _GIVE_BACK: str(int(give_back))}
    return Preload(LIBRARY, settings)
