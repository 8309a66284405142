"""Keep the memory that gradients free, instead of handing it back and asking for it again.

A gradient allocates every activation of the network and frees them all. glibc returns such blocks
to the operating system at once, and the next step faults each page in anew: up to a quarter of the
time of a MobileFaceNet's gradient. The peak, which ``batch_size`` bounds, stays what it was.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of ``mallopt`` for what is handed back at the end of the heap, and for blocks outside."""
_KEEP_UP_TO = 2**31 - 1
_LARGEST_BLOCK = 2**30
_OWN_CHOICE = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


@cache
def keep_freed_memory() -> bool:
    """Set glibc's thresholds for this process; False where there is no glibc or the user chose."""
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _OWN_CHOICE):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    kept = mallopt(_TRIM_THRESHOLD, _KEEP_UP_TO)
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) and kept)
