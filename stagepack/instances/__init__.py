"""The problems (floor 1): instances, solutions, and the checkers of solutions."""
