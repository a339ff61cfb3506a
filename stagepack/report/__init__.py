"""Reports: the comparison as a table for terminals and as a self-contained page."""
