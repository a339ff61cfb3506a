"""Documents: strict JSON, JSON that people can read, tables of cells."""
