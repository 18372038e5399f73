"""ONNX graphs straight from a checkpoint's weights, and what is known about them."""
