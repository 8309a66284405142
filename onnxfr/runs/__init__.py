"""Resumable runs: specification, cells, records, engines."""
