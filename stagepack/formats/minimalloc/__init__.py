"""MiniMalloc: tables of buffers, read and written with their offsets."""
