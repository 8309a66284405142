"""Compares our corruptions with the package imagecorruptions-imaug, statistic by statistic.

    python benchmarks/corruption_fidelity.py --reference-python OTHER/bin/python [--faces FOLDER]

OTHER is an environment of its own with ``pip install '.[reference]'``. Both sides corrupt the same
pictures; random corruptions may differ by 2 % in every statistic, deterministic ones by one grey
level in every pixel. Frost is compared on the reference's own photographs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onnxfr.corruptions import SEVERITIES, corrupt
from onnxfr.rng import stream

OTHER_NAMES = {"jpeg": "jpeg_compression", "facial_distortion": "elastic_transform"}
DETERMINISTIC = ("brightness", "contrast", "defocus_blur", "jpeg", "pixelate", "saturate")
SHARED = (
    *DETERMINISTIC,
    *("facial_distortion", "fog", "frost", "gaussian_noise", "impulse_noise", "motion_blur"),
    *("shot_noise", "snow", "spatter", "speckle_noise", "zoom_blur"),
)
# One draw a picture decides most of the result here: redrawn until chance stays well below 2 %.
REDRAWN = {"frost": 16, "fog": 16, "facial_distortion": 6, "motion_blur": 6, "spatter": 8}
STATISTICS = ("mean", "std", "psnr", "histogram")

Pictures = NDArray[np.uint8]
Cloud = dict[str, Any]
Measured = tuple[dict[str, float], Pictures]


class Reference:
    """The reference package, running in its own environment."""

    def __init__(self, python: str, images: Pictures, folder: Path) -> None:
        self.folder = folder
        np.save(folder / "images.npy", images)
        worker = Path(__file__).with_name("_imagecorruptions_worker.py")
        self.process = subprocess.Popen(
            [python, str(worker), str(folder / "images.npy")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, name: str, severity: int, **more: int | str) -> float:
        """Return the seconds the reference took for all its images."""
        assert self.process.stdin and self.process.stdout
        question = {"name": OTHER_NAMES.get(name, name), "severity": severity, **more}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline())["seconds"])

    def corrupt(self, name: str, severity: int, seed: int = 0) -> Pictures:
        """Return the reference's version of all images."""
        path = self.folder / "corrupted.npy"
        self.ask(name, severity, seed=seed, path=str(path))
        return np.asarray(np.load(path))

    def close(self) -> None:
        """End the other environment's process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def drawn_faces(count: int, side: int = 112) -> Pictures:
    """Return simple drawn faces before clouds: enough structure and colour to measure on."""
    faces = np.empty((count, side, side, 3), dtype=np.uint8)
    for i in range(count):
        rng = stream(0, "drawn face", i)
        ground = cv2.resize(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8), (side, side))
        canvas = np.ascontiguousarray(ground)
        skin = tuple(int(v) for v in rng.uniform((120, 80, 60), (240, 200, 180)))
        middle = side // 2
        cv2.ellipse(
            canvas, (middle, middle + 4), (side // 3, side * 45 // 100), 0, 0, 360, skin, -1
        )
        for eye in (38, 74):
            at = (eye * side // 112, 52 * side // 112)
            cv2.ellipse(canvas, at, (side // 14, side // 28), 0, 0, 360, (245, 245, 245), -1)
            cv2.circle(canvas, at, side // 32, tuple(int(v) for v in rng.integers(0, 120, 3)), -1)
        cv2.line(canvas, (middle, 56 * side // 112), (middle, 74 * side // 112), (90, 60, 50), 2)
        mouth = (middle, 92 * side // 112)
        cv2.ellipse(canvas, mouth, (side // 8, side // 22), 0, 0, 180, (150, 40, 50), -1)
        texture = rng.normal(0, 4, (side, side, 1))
        soft = cv2.GaussianBlur(canvas, (0, 0), 0.8)
        faces[i] = np.clip(soft + texture, 0, 255)
    return faces


def load_faces(folder: Path | None, count: int) -> Pictures:
    """Return pictures of a folder (one a person first), or drawn ones."""
    if folder is None:
        return drawn_faces(count)
    paths = sorted(folder.glob("*/*_0001.jpg"))[:: max(1, 5000 // count)][:count]
    return np.stack([np.asarray(Image.open(path).convert("RGB")) for path in paths])


def distortion(clean: Pictures, corrupted: Pictures) -> dict[str, float]:
    """Return mean, std, PSNR in dB and the mean earth mover's distance of the histograms."""
    error = float(np.mean((corrupted.astype(np.float64) - clean) ** 2))
    return {
        "mean": float(corrupted.mean()),
        "std": float(corrupted.reshape(len(corrupted), -1).std(axis=1).mean()),
        "psnr": float(20 * np.log10(255 / np.sqrt(max(error, 1e-12)))),
        "histogram": float(np.mean([_emd(a, b) for a, b in zip(clean, corrupted, strict=True)])),
    }


def _emd(a: Pictures, b: Pictures) -> float:
    cumulated = [np.cumsum(np.bincount(p.ravel(), minlength=256)) / p.size for p in (a, b)]
    return float(np.abs(cumulated[0] - cumulated[1]).sum())


def reference_photographs(python: str) -> list[Pictures]:
    """Return the frost pictures of the reference package."""
    where = "import imagecorruptions as i, pathlib; print(pathlib.Path(i.__file__).parent)"
    found = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    paths = sorted((Path(found.stdout.strip()) / "frost").iterdir())
    return [np.asarray(Image.open(path).convert("RGB")) for path in paths]


def measure_ours(images: Pictures, name: str, severity: int, lent: list[Pictures]) -> Measured:
    """Return our statistics over all redraws, and the first batch."""
    batches = []
    for draw in range(REDRAWN.get(name, 1)):
        ids = [f"{draw}/{i}" for i in range(len(images))]
        batches.append(
            corrupt(
                images,
                name,
                severity,
                ids=ids,
                preset="imagecorruptions",
                frost_photographs=lent or None,
            )
        )
    return average([distortion(images, batch) for batch in batches]), batches[0]


def measure_theirs(reference: Reference, images: Pictures, name: str, severity: int) -> Measured:
    """Return the reference's statistics over all redraws, and the first batch."""
    seeds = [10 * severity + 100 * draw for draw in range(REDRAWN.get(name, 1))]
    batches = [reference.corrupt(name, severity, seed) for seed in seeds]
    return average([distortion(images, batch) for batch in batches]), batches[0]


def average(rows: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of every statistic."""
    return {s: round(float(np.mean([row[s] for row in rows])), 4) for s in STATISTICS}


def compare(
    reference: Reference, images: Pictures, photographs: list[Pictures], names: list[str]
) -> bool:
    """Print one line per corruption and severity; return whether all agree."""
    good = True
    print("each cell: ours, theirs, relative difference")
    print(f"{'corruption':<19}s  " + "  ".join(f"{s:>20}" for s in STATISTICS) + "   max pixel")
    for name in names:
        for severity in SEVERITIES:
            a, ours = measure_ours(images, name, severity, photographs)
            b, theirs = measure_theirs(reference, images, name, severity)
            gaps = {s: abs(a[s] - b[s]) / max(abs(b[s]), 1e-9) for s in STATISTICS}
            pixel = int(np.abs(ours.astype(np.int16) - theirs).max())
            exact = name in DETERMINISTIC
            fine = max(gaps.values()) <= 0.02 and (pixel <= 1 or not exact)
            good &= fine
            cells = "  ".join(f"{a[s]:7.2f} {b[s]:6.2f} {gaps[s]:5.2%}" for s in STATISTICS)
            print(f"{name:<19}{severity}  {cells}   {pixel if exact else '-':>3}", end="")
            print("" if fine else "  DIFFERS", flush=True)
    return good


def reference_cloud(python: str, seed: int = 0, side: int = 16, decay: float = 1.7) -> Cloud:
    """Return the fog map that the reference grows from one seed."""
    grow = (
        "import json, numpy as np; from imagecorruptions.corruptions import plasma_fractal;"
        f"np.random.seed({seed}); print(json.dumps(plasma_fractal({side}, {decay}).tolist()))"
    )
    grown = subprocess.run([python, "-c", grow], capture_output=True, text=True, check=True)
    return {"seed": seed, "side": side, "decay": decay, "values": json.loads(grown.stdout)}


def write_golden(reference: Reference, images: Pictures, cloud: Cloud, path: Path) -> None:
    """Store the reference's statistics on drawn faces for tests that run without it.

    Fog is left to the exact comparison of one cloud: its statistics need thousands of clouds.
    """
    golden = {
        name: [measure_theirs(reference, images, name, severity)[0] for severity in SEVERITIES]
        for name in SHARED
        if name not in ("frost", "fog")
    }
    facts = {"reference": "imagecorruptions-imaug 1.1.5", "drawn_faces": len(images)}
    path.write_text(json.dumps({**facts, "statistics": golden, "cloud": cloud}) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference-python", required=True, help="Python that has the reference")
    parser.add_argument("--faces", type=Path, help="folder of person/person_0001.jpg, 112x112")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=SHARED, help="compare just these")
    parser.add_argument("--write-golden", type=Path, help="store statistics on drawn faces here")
    options = parser.parse_args()
    images = load_faces(options.faces, options.images)
    with tempfile.TemporaryDirectory() as folder:
        reference = Reference(options.reference_python, images, Path(folder))
        try:
            if options.write_golden:
                cloud = reference_cloud(options.reference_python)
                write_golden(reference, images, cloud, options.write_golden)
                return 0
            photographs = reference_photographs(options.reference_python)
            good = compare(reference, images, photographs, options.only or list(SHARED))
        finally:
            reference.close()
    print("all agree" if good else "some differ")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
