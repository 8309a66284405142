"""EdgeFace XXS to Base (George et al., T-BIOM 2024) on EdgeNeXt (Maaz et al., ECCVW 2022).

Names follow the public checkpoints (``model.stages...``). The gamma variants factor every linear
layer, the embedding included, into two of rank ``gamma * min(in, out)``. The positional code of the
first attention depends on the map's size only, so it becomes a constant of an exported graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures.base import Architecture, Reported, register
from onnxfr.models.preprocessing import Preprocessing

PAPER = "George et al., EdgeFace: Efficient Face Recognition Model for Edge Devices, T-BIOM 2024"
Linear = Callable[[int, int], nn.Module]


class LowRankLinear(nn.Module):
    """A linear layer as the product of two thin ones."""

    def __init__(self, inputs: int, outputs: int, gamma: float) -> None:
        super().__init__()
        rank = max(2, int(min(inputs, outputs) * gamma))
        self.linear1 = nn.Linear(inputs, rank, bias=False)
        self.linear2 = nn.Linear(rank, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both."""
        out: Tensor = self.linear2(self.linear1(x))
        return out


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of ``(N, C, H, W)``."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise every pixel's channels."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Mlp(nn.Module):
    """Linear, GELU, linear."""

    def __init__(self, dim: int, linear: Linear) -> None:
        super().__init__()
        self.fc1 = linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.fc2 = linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to the last axis."""
        out: Tensor = self.fc2(self.act(self.fc1(x)))
        return out


class ConvEncoder(nn.Module):
    """Depthwise convolution and a pixelwise MLP, scaled and added to the input."""

    def __init__(self, dim: int, kernel: int, linear: Linear) -> None:
        super().__init__()
        self.conv_dw = nn.Conv2d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, linear)
        self.gamma = nn.Parameter(torch.full((dim,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        pixels = self.norm(self.conv_dw(x).permute(0, 2, 3, 1))
        update: Tensor = (self.gamma * self.mlp(pixels)).permute(0, 3, 1, 2)
        return x + update


class FourierPosition(nn.Module):
    """Sines and cosines of the pixel's place, projected to the channels."""

    def __init__(self, dim: int, hidden: int = 32) -> None:
        super().__init__()
        self.hidden = hidden
        self.token_projection = nn.Conv2d(2 * hidden, dim, 1)

    def _axis(self, length: int, like: Tensor) -> Tensor:
        place = torch.arange(1, length + 1, dtype=like.dtype, device=like.device)
        place = place / (length + 1e-6) * (2 * math.pi)
        even = torch.arange(0, self.hidden, 2, dtype=like.dtype, device=like.device)
        angle = place[:, None] / 10000.0 ** (even / self.hidden)
        return torch.stack((angle.sin(), angle.cos()), dim=2).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(1, dim, H, W)`` for the size of ``x``."""
        height, width = int(x.shape[2]), int(x.shape[3])
        rows = self._axis(height, x)[:, None].expand(height, width, self.hidden)
        columns = self._axis(width, x)[None].expand(height, width, self.hidden)
        code = torch.cat((rows, columns), dim=2).permute(2, 0, 1)[None]
        out: Tensor = self.token_projection(code)
        return out


class CrossCovarianceAttention(nn.Module):
    """Attention between channels instead of pixels (El-Nouby et al., NeurIPS 2021)."""

    def __init__(self, dim: int, heads: int, linear: Linear) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkv = linear(dim, 3 * dim)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.proj = linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the channels of ``(N, pixels, dim)``."""
        pixels = int(x.shape[1])
        parts = self.qkv(x).reshape(-1, pixels, 3, self.heads, self.head_dim)
        query, key, value = parts.permute(2, 0, 3, 4, 1).unbind(0)
        weights = _unit(query) @ _unit(key).transpose(-2, -1) * self.temperature
        mixed = torch.softmax(weights, dim=-1) @ value
        mixed = mixed.permute(0, 3, 1, 2).reshape(-1, pixels, self.heads * self.head_dim)
        out: Tensor = self.proj(mixed)
        return out


def _unit(x: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.clamp(min=1e-12)


class SplitAttentionEncoder(nn.Module):
    """Cascaded depthwise convolutions on channel splits, channel attention, pixelwise MLP."""

    def __init__(self, dim: int, splits: int, heads: int, linear: Linear, *, placed: bool) -> None:
        super().__init__()
        self.dim = dim
        width = math.ceil(dim / splits)
        self.widths = [width] * (splits - 1) + [dim - width * (splits - 1)]
        self.convs = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1, groups=width) for _ in range(splits - 1)
        )
        self.pos_embd = FourierPosition(dim) if placed else None
        self.norm_xca = nn.LayerNorm(dim, eps=1e-6)
        self.gamma_xca = nn.Parameter(torch.full((dim,), 1e-6))
        self.xca = CrossCovarianceAttention(dim, heads, linear)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, linear)
        self.gamma = nn.Parameter(torch.full((dim,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        height, width = int(x.shape[2]), int(x.shape[3])
        parts = torch.split(x, self.widths, dim=1)
        done: list[Tensor] = []
        for index, conv in enumerate(self.convs):
            done.append(conv(done[-1] + parts[index] if done else parts[index]))
        mixed = torch.cat((*done, parts[-1]), dim=1)
        if self.pos_embd is not None:
            mixed = mixed + self.pos_embd(mixed)
        tokens = mixed.reshape(-1, self.dim, height * width).transpose(1, 2)
        tokens = tokens + self.gamma_xca * self.xca(self.norm_xca(tokens))
        update: Tensor = self.gamma * self.mlp(self.norm(tokens))
        update = update.transpose(1, 2).reshape(-1, self.dim, height, width)
        return x + update


class Stage(nn.Module):
    """Optional downsampling, convolution encoders, at most one attention encoder."""

    def __init__(self, downsample: nn.Module, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.downsample = downsample
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the stage."""
        out: Tensor = self.blocks(self.downsample(x))
        return out


class Head(nn.Module):
    """Mean over the map, normalisation, embedding."""

    def __init__(self, dim: int, linear: Linear) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.fc = linear(dim, 512)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        out: Tensor = self.fc(self.norm(torch.mean(x, dim=(2, 3))))
        return out


class EdgeNeXt(nn.Module):
    """The four-stage trunk and its head."""

    def __init__(
        self, dims: tuple[int, ...], depths: tuple[int, ...], heads: int, linear: Linear
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dims[0], 4, 4), ChannelNorm(dims[0]))
        stages: list[nn.Module] = []
        for index, (dim, depth) in enumerate(zip(dims, depths, strict=True)):
            blocks: list[nn.Module] = [
                ConvEncoder(dim, 3 + 2 * index, linear) for _ in range(depth - (index > 0))
            ]
            down: nn.Module = nn.Identity()
            if index > 0:
                blocks.append(
                    SplitAttentionEncoder(dim, 1 + index, heads, linear, placed=index == 1)
                )
                before = dims[index - 1]
                down = nn.Sequential(ChannelNorm(before), nn.Conv2d(before, dim, 2, 2))
            stages.append(Stage(down, blocks))
        self.stages = nn.Sequential(*stages)
        self.head = Head(dims[-1], linear)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        out: Tensor = self.head(self.stages(self.stem(x)))
        return out


class EdgeFace(nn.Module):
    """EdgeNeXt under the attribute ``model``, as public checkpoints name it."""

    def __init__(
        self,
        dims: tuple[int, ...],
        depths: tuple[int, ...],
        heads: int,
        gamma: float | None = None,
    ) -> None:
        super().__init__()
        linear: Linear = nn.Linear if gamma is None else partial(LowRankLinear, gamma=gamma)
        self.model = EdgeNeXt(dims, depths, heads, linear)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        out: Tensor = self.model(x)
        return out


_XXS = ((24, 48, 88, 168), (2, 2, 6, 2), 4)
_XS = ((32, 64, 100, 192), (3, 3, 9, 3), 4)
_S = ((48, 96, 160, 304), (3, 3, 9, 3), 8)
_BASE = ((80, 160, 288, 584), (3, 3, 9, 3), 8)
_TABLE = "published sizes of the EdgeFace checkpoints"
_ENTRIES = {
    "edgeface_xxs": (_XXS, None, "1.24"),
    "edgeface_xs_gamma_06": (_XS, 0.6, "1.77"),
    "edgeface_s_gamma_05": (_S, 0.5, "3.65"),
    "edgeface_base": (_BASE, None, "18.23"),
}

for _name, (_shape, _gamma, _millions) in _ENTRIES.items():
    register(
        Architecture(
            name=_name,
            build=partial(EdgeFace, *_shape, gamma=_gamma),
            input_size=(112, 112),
            embedding_dim=512,
            paper=PAPER,
            reported=(Reported(_TABLE, _millions),),
            preprocessing=Preprocessing(color="rgb", scaling="pm1"),
        )
    )
