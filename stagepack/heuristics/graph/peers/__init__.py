"""What others do with graphs: METIS, and the recurrence of PipeDream."""
