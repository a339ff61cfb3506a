"""Tests of the pipeline formulations."""
