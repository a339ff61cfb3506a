"""Networks in ONNX: models as they stand, as operators with their costs, as layer groupings."""
