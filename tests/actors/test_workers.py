"""A pipeline of several encoders and decoders, in real processes: the text of one, and its numbers by name."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile

from susurrus.actors import Pipeline
from susurrus.actors.batch import Batch
from susurrus.actors.render import PlainRenderer
from susurrus.actors.service import Displayed
from susurrus.actors.status import as_table, ask
from susurrus.actors.terminal import Output
from susurrus.actors.view import JobEvent
from susurrus.models import OptionError, Whisper
from susurrus.models.inputs import Input
from susurrus.models.options import OptionFields
from susurrus.models.threads import usable_cpus
from susurrus.protocol import Connection, Done, Partial, Segment
from tests.actors.fakes import OPTIONS, PATIENCE_S, PLAIN, RATE, sounds, with_plain
from tests.conftest import SAMPLES

NAMES = ("frontend", "encoder", "decoder", "encoder-2", "decoder-2", "encoder-3", "decoder-3")


@pytest.fixture(scope="module", params=[2, 3])
def pipeline(request: pytest.FixtureRequest, tiny: Path, runtime_parent: Path) -> Iterator[Pipeline]:
    """One of two, then one of three lanes, which many tests use."""
    assert runtime_parent.is_dir()
    with Pipeline(tiny, workers=request.param, threads=1) as pipeline:
        assert pipeline.wait_until_ready(PATIENCE_S)
        yield pipeline


@pytest.fixture(scope="module")
def whisper(tiny: Path) -> Whisper:
    """The same model in this process."""
    return Whisper.load(tiny, threads=1)


def text_of(events: list[JobEvent]) -> str:
    """Of a job that is done; held to the protocol on the way."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    committed = 0
    for event in events:
        if isinstance(event, Partial | Segment):
            assert event.window == committed
            committed += isinstance(event, Segment)
    assert isinstance(events[-1], Done), events[-1]
    return events[-1].text


@pytest.mark.parametrize(
    "wish",
    [{}, {"language": "en", "prompt": "as it was said"}, {"condition_on_previous_text": True}, {"multilingual": True}],
    ids=str,
)
def test_the_text_is_that_of_the_same_model_in_process(
    pipeline: Pipeline, whisper: Whisper, wish: OptionFields
) -> None:
    silence = np.zeros(3 * RATE, np.float32)
    samples = np.concatenate([silence, sounds(9.0, 1), silence, sounds(6.0, 2)])
    wanted = whisper.transcribe(samples, **with_plain(wish))
    events = list(pipeline.transcribe(samples, **with_plain(wish)))
    assert text_of(events) == wanted.text != ""
    end = events[-1]
    assert isinstance(end, Done)
    assert (end.language, end.language_probability) == (wanted.language, wanted.language_probability)
    assert end.warnings == wanted.warnings
    segments = [event for event in events if isinstance(event, Segment)]
    assert [segment.tokens for segment in segments] == [each.decoded.tokens for each in wanted.segments]


def test_many_jobs_at_once_have_each_its_own_text(pipeline: Pipeline, whisper: Whisper, tmp_path: Path) -> None:
    paths = []
    for seed in range(5):
        soundfile.write(tmp_path / f"{seed}.wav", sounds(2.0 + seed, seed), RATE, subtype="FLOAT")
        paths.append(tmp_path / f"{seed}.wav")
    with ThreadPoolExecutor(len(paths)) as threads:
        texts = threads.map(lambda path: text_of(list(pipeline.transcribe(path, **PLAIN))), paths)
        assert list(texts) == [whisper.transcribe(path, **PLAIN).text for path in paths]


def test_several_files_are_in_work_at_once_and_shown_in_their_order(
    pipeline: Pipeline, whisper: Whisper, tmp_path: Path
) -> None:
    """The first one is long: later ones are finished before it, and wait."""
    paths = []
    for seed, seconds in enumerate((8.0, 0.8, 3.0, 0.8, 2.0)):
        soundfile.write(tmp_path / f"{seed}.wav", sounds(seconds, seed), RATE, subtype="FLOAT")
        paths.append(tmp_path / f"{seed}.wav")
    out, err = io.StringIO(), io.StringIO()
    with pipeline.client() as client:
        displayed = Displayed(client, PlainRenderer(Output(out), Output(err)))
        batch = Batch()
        assert batch.run(displayed, OPTIONS, [Input(str(path)) for path in paths]) == 0
    assert out.getvalue().splitlines() == [whisper.transcribe(path, **PLAIN).text for path in paths]
    assert [row.name for row in batch.rows] == [str(path) for path in paths]


def test_every_actor_has_its_name_in_the_status(pipeline: Pipeline) -> None:
    names = NAMES[: len(pipeline.pids())]
    assert tuple(pipeline.pids()) == names
    status = ask(pipeline.connection, PATIENCE_S)
    assert [actor.name for actor in status.actors] == ["hub", *names]
    assert [actor.pid for actor in status.actors[1:]] == list(pipeline.pids().values())
    assert any(line.startswith("encoder-2 ") for line in as_table(status))


def test_the_workers_share_the_cpus_unless_the_user_says_otherwise(tiny: Path) -> None:
    for threads, wanted in ((0, max(1, usable_cpus() // 2)), (3, 3)):
        with Pipeline(tiny, workers=2, threads=threads) as pipeline:
            assert Connection.read(pipeline.connection_file).settings.threads == wanted


def test_workers_that_cannot_be_are_refused_before_anything_is_started(tiny: Path) -> None:
    with pytest.raises(OptionError, match="--workers -1"):
        Pipeline(tiny, workers=-1)


def test_speech_is_understood_by_several_workers_as_it_is_in_one_process(tiny_en: Path, tmp_path: Path) -> None:
    """Words, not sounds: with timestamps, with windows of many seconds, and cut where nobody speaks."""
    pieces = [soundfile.read(SAMPLES / name, dtype="float32")[0] for name in ("jfk.wav", "austen.wav", "jfk.wav")]
    long = tmp_path / "long.wav"
    soundfile.write(long, np.concatenate(pieces * 3), RATE, subtype="FLOAT")
    paths = [long, *sorted(SAMPLES.glob("*.wav"))]
    model = Whisper.load(tiny_en, threads=1)
    wanted = [model.transcribe(path) for path in paths]
    assert len(wanted[0].segments) >= 3
    for workers in (2, 3):
        with Pipeline(tiny_en, workers=workers, threads=1) as pipeline:
            for path, transcript in zip(paths, wanted, strict=True):
                events = list(pipeline.transcribe(path))
                assert text_of(events) == transcript.text
                cues = [(cue.start, cue.end) for event in events if isinstance(event, Segment) for cue in event.cues]
                assert cues == [(cue.start, cue.end) for each in transcript.segments for cue in each.cues]
