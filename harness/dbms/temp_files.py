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
_SETTING: Final = "FLASHLAB_TEMP_FILE_BYTES"


def preallocation(file_bytes: int) -> Preload | None:
    """Every temporary file gets so many bytes at its creation; what it did not use is given back
    when it is closed. 0: None, files grow as they are written. Raises BadParameter.
    """
    if file_bytes < 0:
        raise BadParameter(f"preallocation_bytes {file_bytes}: 0 or more")
    return Preload(LIBRARY, {_SETTING: str(file_bytes)}) if file_bytes else None
