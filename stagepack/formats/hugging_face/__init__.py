"""Models of Hugging Face by their config.json alone: layers, bytes, arithmetic."""
