"""Integrations with frameworks: networks that do not come from files."""
