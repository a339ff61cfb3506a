"""Lower bounds on makespan and span: what a device must run before, between and after."""
