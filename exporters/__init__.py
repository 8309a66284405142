"""One file per source framework: each writes a normal-form ONNX file and its card."""
