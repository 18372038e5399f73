"""Models as Hugging Face's Optimum exports them: an encoder, two decoders, and the checkpoint's JSON files."""
