"""Lower bounds on makespan and span, from the work before, between and after operations."""
