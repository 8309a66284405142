"""ViT for faces (Dosovitskiy et al., ICLR 2021), with TransFace's gate (Dan et al., ICCV 2023).

Names follow arcface_torch and TransFace. 112x112 is cut into 12x12 patches of 9 pixels; there is
no class token, all tokens feed the embedding layer. The mask token serves training only.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from onnxfr.exporters.architectures.base import Architecture, Reported, register
from onnxfr.models.preprocessing import Preprocessing

VIT = "Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021"
TRANSFACE = (
    "Dan et al., TransFace: Calibrating Transformer Training for Face Recognition, ICCV 2023"
)
TOKENS, PATCH = 144, 9


class Attention(nn.Module):
    """Multi-head self-attention without query/key/value biases."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens."""
        parts = self.qkv(x).reshape(-1, TOKENS, 3, self.heads, self.head_dim)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(query @ key.transpose(-2, -1) * self.head_dim**-0.5, dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(-1, TOKENS, self.heads * self.head_dim)
        out: Tensor = self.proj(mixed)
        return out


class Mlp(nn.Module):
    """Two linear layers around a ReLU6."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.act = nn.ReLU6()
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to every token."""
        out: Tensor = self.fc2(self.act(self.fc1(x)))
        return out


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention, then the MLP."""
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class PatchEmbed(nn.Module):
    """Strided convolution that makes one token per patch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, PATCH, PATCH)
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(N, tokens, dim)``."""
        tokens: Tensor = self.proj(x)
        return tokens.reshape(-1, self.dim, TOKENS).transpose(1, 2)


class FaceViT(nn.Module):
    """Patches, blocks, optional token gate, two-layer embedding head."""

    def __init__(self, dim: int, depth: int, heads: int = 8, *, gated: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.patch_embed = PatchEmbed(dim)
        self.pos_embed = nn.Parameter(torch.zeros(1, TOKENS, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.feature = nn.Sequential(
            nn.Linear(dim * TOKENS, dim, bias=False),
            nn.BatchNorm1d(dim, eps=2e-5),
            nn.Linear(dim, 512, bias=False),
            nn.BatchNorm1d(512, eps=2e-5),
        )
        self.senet = (
            nn.Sequential(
                nn.Linear(dim * TOKENS, TOKENS, bias=False),
                nn.ReLU(),
                nn.Linear(TOKENS, TOKENS, bias=False),
                nn.Sigmoid(),
            )
            if gated
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedding, not normalised."""
        x = self.norm(self.blocks(self.patch_embed(x) + self.pos_embed))
        if self.senet is not None:
            x = x * self.senet(x.reshape(-1, TOKENS * self.dim)).unsqueeze(-1)
        out: Tensor = self.feature(x.reshape(-1, TOKENS * self.dim))
        return out


_ENTRIES: dict[str, tuple[int, int, bool, str, tuple[Reported, ...]]] = {
    "vit_t": (256, 12, False, VIT, ()),
    "vit_s": (512, 12, False, VIT, ()),
    "vit_b": (512, 24, False, VIT, ()),
    "transface_s": (512, 12, True, TRANSFACE, (Reported("OODFace Table 1: TransFace", "86.7"),)),
    "transface_b": (512, 24, True, TRANSFACE, ()),
}

for _name, (_dim, _depth, _gated, _paper, _reported) in _ENTRIES.items():
    register(
        Architecture(
            name=_name,
            build=partial(FaceViT, _dim, _depth, gated=_gated),
            input_size=(112, 112),
            embedding_dim=512,
            paper=_paper,
            reported=_reported,
            preprocessing=Preprocessing(color="rgb", scaling="pm1"),
            discard=("mask_token",),
        )
    )
