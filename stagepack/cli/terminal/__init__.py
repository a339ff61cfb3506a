"""What a person sees while a command runs and when it is done: consoles, progress, documents."""
