"""What relaxing, permuting, scaling, splitting and copying instances must do to their answers."""
