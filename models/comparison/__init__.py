"""Two pipelines side by side, stage by stage: see `susurrus.models.compare`."""
