"""Attacks on a verifier, one file each; the Oracle is their whole world."""

from onnxfr.attacks.base import ATTACKS, Attack, AttackResult
from onnxfr.attacks.composition import make_attack

__all__ = ["ATTACKS", "Attack", "AttackResult", "make_attack"]
