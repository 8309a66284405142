"""Image corruptions, one function each with five named severities."""
