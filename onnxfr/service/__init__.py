"""A verifier over HTTP, made like the commercial ones, from any admitted model."""
