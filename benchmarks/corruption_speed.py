"""Times our corruptions against the package imagecorruptions-imaug, interleaved, one thread each.

    python benchmarks/corruption_speed.py --reference-python OTHER/bin/python

OTHER is an environment with ``pip install imagecorruptions-imaug==1.1.5``. The two take turns on
every corruption and severity, the faster of several turns counts for each: on a shared machine the
ratio is then worth more than either time. Fails unless ours needs at most an eighth in total and no
corruption is slower.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import cv2
from corruption_fidelity import SHARED, Pictures, Reference, drawn_faces

from onnxfr.corruptions import SEVERITIES, corrupt

GOAL = 8.0


def seconds(images: Pictures, name: str, severity: int) -> float:
    """Return what one batch takes us."""
    ids = [str(i) for i in range(len(images))]
    start = time.perf_counter()
    corrupt(images, name, severity, ids=ids)
    return time.perf_counter() - start


def race(reference: Reference, images: Pictures, turns: int) -> bool:
    """Print milliseconds per image and the ratio; return whether the goal is met."""
    total_ours = total_theirs = 0.0
    slower = []
    print(f"{'corruption':<19}{'ours ms':>9}{'theirs ms':>11}{'ratio':>8}")
    for name in SHARED:
        ours = theirs = 0.0
        for severity in SEVERITIES:
            # The first call of either side fills caches and compiles; it is not counted.
            reference.ask(name, severity, count=1)
            seconds(images[:1], name, severity)
            pairs = [
                (seconds(images, name, severity), reference.ask(name, severity))
                for _ in range(turns)
            ]
            ours += min(pair[0] for pair in pairs) / len(images) * 1e3
            theirs += min(pair[1] for pair in pairs) / len(images) * 1e3
        if theirs <= ours:
            slower.append(name)
        total_ours, total_theirs = total_ours + ours, total_theirs + theirs
        print(f"{name:<19}{ours:9.2f}{theirs:11.2f}{theirs / ours:8.1f}")
    ratio = total_theirs / total_ours
    print(f"{'all':<19}{total_ours:9.2f}{total_theirs:11.2f}{ratio:8.1f}  (five severities each)")
    print(f"slower: {', '.join(slower) or 'none'}")
    return ratio >= GOAL and not slower


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference-python", required=True, help="Python that has the reference")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    images = drawn_faces(options.images)
    with tempfile.TemporaryDirectory() as folder:
        reference = Reference(options.reference_python, images, Path(folder))
        try:
            return 0 if race(reference, images, options.turns) else 1
        finally:
            reference.close()


if __name__ == "__main__":
    sys.exit(main())
