"""One file per evaluator that has something to show."""
