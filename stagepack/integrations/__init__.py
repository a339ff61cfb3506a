"""Where networks come from, and go to, that are not files."""
