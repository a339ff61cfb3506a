"""Files: those of other tools, a folder each; our own; and the door through which all go."""
