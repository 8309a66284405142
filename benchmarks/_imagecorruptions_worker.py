"""Answers questions about the reference package, in the environment that has it.

Reads one JSON line per question and writes one per answer; needs NumPy, OpenCV, imagecorruptions.
Started by the corruption benchmarks with the Python of another environment.
"""

import json
import sys
import time

import cv2
import numpy as np
from imagecorruptions import corrupt


def main() -> None:
    """Serve questions until the input ends."""
    cv2.setNumThreads(1)
    images = np.load(sys.argv[1])
    for line in sys.stdin:
        question = json.loads(line)
        name, severity = question["name"], question["severity"]
        np.random.seed(question.get("seed", 0))  # noqa: NPY002 the package knows no other way
        chosen = images[: question.get("count", len(images))]
        start = time.perf_counter()
        out = [corrupt(image, severity=severity, corruption_name=name) for image in chosen]
        seconds = time.perf_counter() - start
        if "path" in question:
            np.save(question["path"], np.stack(out))
        sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
