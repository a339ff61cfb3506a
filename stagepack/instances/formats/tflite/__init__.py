"""TensorFlow Lite models: what they say of their tensors, and plans of memory in them."""
