"""Biometric metrics and statistics on plain arrays."""
