"""The rules, one function per ONNX operator, grouped by family."""
