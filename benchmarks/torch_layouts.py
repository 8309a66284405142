"""What each memory layout and the dilation of 1x1 convolutions do to a gradient on one thread.

Run: python benchmarks/torch_layouts.py [--batch 8] [--rounds 7] NAME or FOLDER ...

The same network is laid out anew before every turn and the four take turns; processor time per
picture, median over the rounds, and relative to channels-last without dilations, which was the
best there was.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import fx

from onnxfr.models.graph import to_torch
from onnxfr.models.torch_layout import lay_out
from onnxfr.models.wrapper import load_model

NAMES = ("planes", "channels-last", "planes spread", "channels-last spread")


def seconds(module: fx.GraphModule, name: str, pictures: torch.Tensor) -> float:
    """Return the processor time of a forward and backward pass in one layout."""
    layout = lay_out(module, name)
    variable = pictures.clone(memory_format=layout).requires_grad_()
    start = time.process_time()
    torch.autograd.grad(module(variable)[:, 0].sum(), variable)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for reference in options.models:
        model = load_model(reference, threads=1)
        model.embed_grad(torch.zeros(1, 3, *model.card.input_size))
        module = to_torch(model.graph())
        pictures = torch.rand(options.batch, 3, *model.card.input_size)
        turns = range(options.rounds + 1)
        spent = np.array([[seconds(module, name, pictures) for name in NAMES] for _ in turns])[1:]
        usual = spent[:, NAMES.index("channels-last")]
        for name, times in zip(NAMES, spent.T, strict=True):
            each = 1000 * float(np.median(times)) / options.batch
            ratio = float(np.median(times / usual))
            print(f"{reference:20} {name:22} {each:6.1f} ms a picture  {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
