"""Verifiers at the other end of a network, asked through an adapter and paid from a budget."""
