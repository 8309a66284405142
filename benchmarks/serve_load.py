"""What `onnxfr serve` holds under load, against the bare model on the same machine.

Rounds alternate: bare onnxruntime, our engine alone, then the service under concurrent clients.
Bodies are encoded before the clock starts, pictures are aligned crops and alignment is off, so that
the difference is what the service itself costs: HTTP, JPEG decoding, batching, answers, log. The
clients share the machine's cores with the service. On a machine that is busy with other things read
the ratios of processor time; those of wall time then say how the scheduler shared the cores.

    python benchmarks/serve_load.py --model w600k_mbf --faces PATH/lfw_112
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

from onnxfr.data.images import decode, to_images
from onnxfr.models.wrapper import OnnxModel, load_model
from onnxfr.types import Images

BATCH = 64
COMMAND = [sys.executable, "-P", "-c", "from onnxfr.cli import main; main()"]


def bodies(files: list[bytes]) -> list[bytes]:
    """Return whole HTTP requests, each with two different pictures."""
    made = []
    for k, probe in enumerate(files):
        reference, mark = files[(k * 7 + 1) % len(files)], b"onnxfr-load"
        parts = b"".join(
            b"--"
            + mark
            + b'\r\nContent-Disposition: form-data; name="'
            + name
            + b'"; filename="a.jpg"\r\n\r\n'
            + blob
            + b"\r\n"
            for name, blob in ((b"probe", probe), (b"reference", reference))
        )
        body = parts + b"--" + mark + b"--\r\n"
        head = (
            "POST /v1/verify HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: multipart/form-data; boundary={mark.decode()}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


async def client(
    port: int, requests: list[bytes], start: int, until: float, seen: list[tuple[float, float]]
) -> int:
    """Ask one question after the other; return how many were not answered with a verdict."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    errors, k = 0, start
    while time.perf_counter() < until:
        begin = time.perf_counter()
        writer.write(requests[k % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        seen.append((time.perf_counter(), time.perf_counter() - begin))
        errors += not head.startswith(b"HTTP/1.1 200") or b'"match"' not in body
        k += 1
    writer.close()
    return errors


async def storm(
    port: int, requests: list[bytes], clients: int, seconds: float
) -> tuple[float, list[float], int, int]:
    """Return requests per second, their latencies, the errors, and all that were asked."""
    seen: list[tuple[float, float]] = []
    begin = time.perf_counter()
    warm, until = begin + 1.0, begin + 1.0 + seconds
    errors = await asyncio.gather(
        *(client(port, requests, 5 * k, until, seen) for k in range(clients))
    )
    timed = [latency for at, latency in seen if warm <= at <= until]
    return len(timed) / seconds, timed, sum(errors), len(seen)


def processor_seconds(pid: int) -> float:
    """Return the processor time a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def images_per_second(run: object, images: Images, seconds: float) -> tuple[float, float]:
    """Return the throughput of a callable, per second and per second of processor time."""
    assert callable(run)
    run(images)
    begin, used, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begin < seconds:
        run(images)
        count += len(images)
    return count / (time.perf_counter() - begin), count / (time.process_time() - used)


def plain_session(model: OnnxModel) -> object:
    session = onnxruntime.InferenceSession(
        str(model.folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    return lambda images: session.run(None, {"image": images})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="w600k_mbf")
    parser.add_argument("--faces", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    files = [path.read_bytes() for path in sorted(options.faces.rglob("*.jpg"))[:512]]
    requests = bodies(files)
    model = load_model(options.model)
    images = to_images([decode(blob, "face") for blob in files[:BATCH]])
    contenders = {"onnxruntime": plain_session(model), "engine": model.embed}
    rows = []
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            [*COMMAND, "serve", options.model, "--no-align", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert server.stdout is not None
        port = int(server.stdout.readline().split("127.0.0.1:")[1].split("/")[0])
        for _ in range(options.rounds):
            row: dict[str, float] = {}
            for name, run in contenders.items():
                row[name], row[f"{name}_cpu"] = images_per_second(run, images, options.seconds)
            before = processor_seconds(server.pid), time.process_time()
            rate, latencies, errors, asked = asyncio.run(
                storm(port, requests, options.clients, options.seconds)
            )
            used = processor_seconds(server.pid) - before[0], time.process_time() - before[1]
            if not latencies:
                raise SystemExit("no request ended in time: the machine is busy, or --seconds few")
            row |= {
                "service": 2 * rate,
                "service_cpu": 2 * asked / used[0],
                "with_clients_cpu": 2 * asked / sum(used),
                "p50_ms": 1e3 * float(np.percentile(latencies, 50)),
                "p99_ms": 1e3 * float(np.percentile(latencies, 99)),
                "requests": len(latencies),
                "errors": errors,
            }
            rows.append(row)
            print(json.dumps({k: round(v, 1) for k, v in row.items()}), flush=True)
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    for name in contenders:
        for ours, theirs, what in (
            ("service", name, "images per second"),
            ("service_cpu", f"{name}_cpu", "images per processor second, clients not counted"),
            ("with_clients_cpu", f"{name}_cpu", "images per processor second, clients counted"),
        ):
            ratios = [row[ours] / row[theirs] for row in rows]
            print(
                f"service / {name}, {what}: median {statistics.median(ratios):.3f} of "
                f"{len(rows)} rounds (least {min(ratios):.3f}, most {max(ratios):.3f})"
            )
    print(
        f"p99 {statistics.median(row['p99_ms'] for row in rows):.0f} ms, "
        f"{sum(row['requests'] for row in rows):.0f} requests, "
        f"{sum(row['errors'] for row in rows):.0f} errors, {options.clients} clients"
    )


if __name__ == "__main__":
    main()
