"""Attacks that are told yes or no and nothing else, one file each."""
