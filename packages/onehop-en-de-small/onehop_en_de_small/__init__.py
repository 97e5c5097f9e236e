"""English → German for onehop, small; `model.safetensors` and its card lie beside this file."""
