"""A model by name: where it is, where its weights come from, how it is built and repaired."""
