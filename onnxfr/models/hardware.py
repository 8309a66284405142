"""What the processor is and how much of it this process may use."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

from onnxfr.errors import SpecError

_CPUINFO = Path("/proc/cpuinfo")
_CGROUP = Path("/sys/fs/cgroup")

_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("amx_int8", frozenset({"amx_int8"})),
    ("avx512_vnni", frozenset({"avx512_vnni"})),
    ("avx_vnni", frozenset({"avx_vnni"})),
    ("avx512", frozenset({"avx512f", "avx512bw"})),
    ("avx2", frozenset({"avx2"})),
    ("avx", frozenset({"avx"})),
    ("sse4_1", frozenset({"sse4_1"})),
    ("neon_i8mm", frozenset({"i8mm"})),
    ("neon_dotprod", frozenset({"asimddp"})),
    ("neon", frozenset({"asimd"})),
)
# The x86 sets whose widest byte product is VPMADDUBSW: it adds two products in 16 bits, saturating.
_SATURATING = frozenset({"sse4_1", "avx", "avx2", "avx512"})


@cache
def cpu_model() -> str:
    """Return the processor's marketing name, or the architecture where it has none."""
    name = _cpuinfo_field(("model name", "Model", "Hardware"))
    if not name and sys.platform == "darwin":
        name = _sysctl("machdep.cpu.brand_string")
    return name or platform.processor() or platform.machine() or "unknown"


@cache
def cpu_flags() -> frozenset[str]:
    """Return the instruction-set extensions the operating system reports, in lower case."""
    text = _cpuinfo_field(("flags", "Features"))
    if not text and sys.platform == "darwin":
        text = " ".join(_sysctl(f"machdep.cpu.{key}") for key in ("features", "leaf7_features"))
        if platform.machine() == "arm64":
            text += " asimd asimddp"
    return frozenset(text.lower().split())


def instruction_set(flags: frozenset[str] | None = None) -> str:
    """Name the widest extension that decides how int8 and float32 products are computed."""
    present = cpu_flags() if flags is None else flags
    return next((name for name, needed in _LEVELS if needed <= present), "unknown")


def int8_products_saturate(flags: frozenset[str] | None = None) -> bool:
    """Whether unsigned-by-signed byte products may overflow in this processor's fast path."""
    return instruction_set(flags) in _SATURATING


def available_cores() -> int:
    """Count the cores this process may really use: affinity mask and container quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _cgroup_quota(_CGROUP)
    return max(1, min(cores, int(quota + 0.5) or 1)) if quota else max(1, cores)


def thread_budget(threads: int | None = None) -> int:
    """Return how many threads an engine may keep busy: asked, ``ONNXFR_THREADS``, or all cores."""
    if threads is None:
        named = os.environ.get("ONNXFR_THREADS", "").strip()
        if not named:
            return available_cores()
        if not named.isdecimal():
            raise SpecError(f"ONNXFR_THREADS should be a whole number of threads, came {named!r}")
        threads = int(named)
    if threads < 1:
        raise SpecError(f"threads should be at least 1, came {threads}; leave it out for all cores")
    return threads


def _cgroup_quota(root: Path) -> float | None:
    try:
        quota, period = (root / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu/cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (root / "cpu/cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:
            return None
    try:
        share = float(quota) / float(period)
    except (ValueError, ZeroDivisionError):
        return None
    return share if share > 0 else None


def _cpuinfo_field(keys: tuple[str, ...]) -> str:
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in keys and value.strip():
            return value.strip()
    return ""


def _sysctl(name: str) -> str:
    try:
        answer = subprocess.run(
            ["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
