"""One block after another: rules, dives, valleys, memories by value."""
