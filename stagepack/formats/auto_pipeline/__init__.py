"""Auto Pipeline: case files, and profiles of models."""
