"""Tests of proofs."""
