"""Models to and from Hugging Face, ONNX and CTranslate2, each with a parity report.

It knows nothing of training or of the server.
"""
