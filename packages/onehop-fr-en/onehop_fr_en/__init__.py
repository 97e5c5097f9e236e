"""French → English for onehop; `model.safetensors` and its card lie beside this file."""
