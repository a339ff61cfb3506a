"""Branch and bound over canonical packings: least peaks, or proofs that nothing fits."""
