"""Plans that run: as programs, step by step on symbols, and on two engines."""
