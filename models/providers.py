"""Execution providers: what of ONNX Runtime runs the graphs."""

CPU = "cpu"


def execution_providers(provider: str) -> tuple[str, ...]:
    """ONNX Runtime's names for a provider, with the CPU behind it for what it cannot do."""
    names = {CPU: ()}[provider]
    return (*names, "CPUExecutionProvider")
