"""What our own processes write to standard error: never what was said."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import TYPE_CHECKING

import pytest

from susurrus.actors.logs import FORMATS, add_log_options, configure_logs

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Ours; as it was afterwards."""
    ours = logging.getLogger("susurrus")
    before = ours.handlers, ours.level, ours.propagate
    yield ours
    ours.handlers, ours.level, ours.propagate = before


@pytest.mark.parametrize("style", FORMATS)
def test_a_traceback_does_not_show_what_variables_hold(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], style: str
) -> None:
    parser = argparse.ArgumentParser()
    add_log_options(parser)
    configure_logs(parser.parse_args(["--log-format", style]), "decoder")
    assert isinstance(logger.handlers[0], logging.StreamHandler)
    logger.handlers[0].setStream(sys.stderr)
    try:
        fail("dias saw tahw"[::-1])  # so that the line itself does not have it
    except ValueError as error:
        logger.error("unexpected error", exc_info=error)  # noqa: TRY400 - as the actors do it
    written = capsys.readouterr().err
    assert "ValueError" in written
    assert "what was said" not in written


def fail(text: str) -> None:
    """An error in whose frame the text is."""
    raise ValueError(str(len(text)))
