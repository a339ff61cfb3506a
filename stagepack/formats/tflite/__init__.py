"""TensorFlow Lite models: their tensors, and memory plans stored in them."""
