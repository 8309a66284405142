"""Reports: pure functions of a run's records and manifest."""
