"""Gradients must not fault their memory in anew at every step."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource
import torch
from onnxfr.models.memory import keep_freed_memory

kept = {keep} and keep_freed_memory()

layers = [torch.nn.Conv2d(3, 32, 3, padding=1)]
for _ in range(12):
    layers += [torch.nn.PReLU(32), torch.nn.Conv2d(32, 32, 3, padding=1, groups=32)]
network = torch.nn.Sequential(*layers).requires_grad_(False)
picture = torch.rand(2, 3, 112, 112, requires_grad=True)

def gradient():
    torch.autograd.grad(network(picture).sum(), picture)

for _ in range(3):
    gradient()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    gradient()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool, **environment: str) -> tuple[bool, int]:
    """Return whether memory is kept, and the page faults of five gradients, in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(keep=keep)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "OMP_NUM_THREADS": "1", **environment},
    )
    kept, count = done.stdout.split()
    return kept == "True", int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator only")
def test_freed_memory_is_kept_and_used_again() -> None:
    tries = [faults(keep=True) for _ in range(3)]
    if not tries[0][0]:
        pytest.skip("this Linux has another C library than glibc")
    # A kernel short of memory may take pages back meanwhile, which adds faults and never saves any.
    few, many = min(count for _, count in tries), faults(keep=False)[1]
    assert few < many / 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator only")
def test_the_users_own_choice_is_left_alone() -> None:
    kept, _ = faults(keep=True, MALLOC_TRIM_THRESHOLD_="131072")
    assert not kept
