"""What a model's own files say of it: its config.json, read from where the model is."""
