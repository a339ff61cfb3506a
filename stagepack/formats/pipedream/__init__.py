"""PipeDream: profiles of networks."""
