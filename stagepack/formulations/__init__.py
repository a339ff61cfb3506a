"""Wing of models: CP-SAT and MILP formulations, each with build, decode and hint."""
