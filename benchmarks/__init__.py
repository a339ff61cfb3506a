"""Side-by-side runs against named peers, and long soaks; nothing here is part of the tests."""
