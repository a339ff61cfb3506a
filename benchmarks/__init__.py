"""Comparisons with other tools, and long soaks; the tests do not need them."""
