"""Attacks that take gradients of the model itself, or of a surrogate for it."""
