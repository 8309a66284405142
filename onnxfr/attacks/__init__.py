"""Attacks on a verifier, one file each; the Oracle is their whole world."""
