"""Beam search over packings from the bottom up."""
