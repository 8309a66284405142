"""Attacks that ask for scores: the margin of a picture, and nothing about its slope."""
