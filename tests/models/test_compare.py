"""The comparison finds where two pipelines part: every fault that is planted here is found at its stage."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from susurrus.models import compare
from susurrus.models.comparison.comparison import Comparison
from susurrus.models.comparison.diagnosis import CAUSES, explain, recognise_fault
from susurrus.models.comparison.own import OwnPipeline
from susurrus.models.comparison.pipeline import Pipeline, Stage
from susurrus.models.comparison.references import MODULES
from susurrus.models.comparison.report import as_object, in_words
from susurrus.models.comparison.tolerances import EXACT
from susurrus.models.config import MODEL_FILE
from susurrus.models.mel import FILTERS_FILE, LogMel, slaney_filters
from susurrus.models.tokenizer import Tokenizer
from susurrus.models.vocabulary import VOCABULARY_FILE
from tests.conftest import SAMPLES
from tests.models.pipelines import AUDIO, numpy_pipeline
from tests.models.tiny import VOCABULARY, Tensors, build_tiny, random_tensors, write_ctranslate2

CLIP = SAMPLES / "six.wav"  # 0.8 s: the tiny model's window of 1 s ends in silence
Float32Array = NDArray[np.float32]


def load(directory: Path, precision: str = "float32") -> OwnPipeline:
    return OwnPipeline.load(directory, precision=precision, threads=1)


def exchanged(kind: type[OwnPipeline], pipeline: OwnPipeline) -> OwnPipeline:
    """The same parts with other methods."""
    return kind(*(getattr(pipeline, field.name) for field in fields(pipeline)))


def verdict(comparison: Comparison) -> str:
    return "\n".join(explain(comparison))


def htk_filters() -> Float32Array:
    """HTK's mel scale, one triangle of unit area after the other."""
    top = 2595 * np.log10(1 + 8000 / 700)
    hz = [700 * (10 ** (top * index / (AUDIO.n_mels + 1) / 2595) - 1) for index in range(AUDIO.n_mels + 2)]
    bins = [16000 * index / AUDIO.n_fft for index in range(AUDIO.n_freqs)]
    filters = np.zeros((AUDIO.n_mels, AUDIO.n_freqs), np.float32)
    for index, (low, centre, high) in enumerate(zip(hz, hz[1:], hz[2:], strict=False)):
        rising = [(f - low) / (centre - low) if f < centre else (high - f) / (high - centre) for f in bins]
        filters[index] = np.maximum(0, rising) * 2 / (high - low)
    return filters


def swap_keys_and_values(tensors: Tensors) -> None:
    for name in [name for name in tensors if "/attention/linear_1/" in name]:
        key, value = np.split(tensors[name], 2)
        tensors[name] = np.concatenate([value, key])


def shift_positions(tensors: Tensors) -> None:
    """Position n gets the encoding of position n + 1."""
    name = "decoder/position_encodings/encodings"
    tensors[name] = np.roll(tensors[name], -1, axis=0)


@pytest.fixture(scope="module")
def faulty_weights(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Tiny models that read the wrong cache, or at the wrong position, by name of the fault."""
    directories = {}
    for name, plant in {"swapped K and V": swap_keys_and_values, "position offset": shift_positions}.items():
        source = tmp_path_factory.mktemp("faulty")
        tensors = random_tensors()
        plant(tensors)
        build_tiny(write_ctranslate2(source, tensors), source / "model")
        directories[name] = source / "model"
    return directories


def without_floor(samples: Float32Array, monkeypatch: pytest.MonkeyPatch, **constants: float) -> Any:
    """Our own log-mel with other constants."""
    for name, value in constants.items():
        monkeypatch.setattr(f"susurrus.models.mel.{name}", np.float32(value))
    with np.errstate(divide="ignore"):
        mel, silence = LogMel(AUDIO, slaney_filters(16000, 400, AUDIO.n_mels))(samples)
    monkeypatch.undo()
    return mel, silence


def multilingual(pipeline: OwnPipeline, transcribe: int) -> OwnPipeline:
    """The same with a tokenizer that takes language and task."""
    special = replace(pipeline.tokenizer.special, multilingual=True, transcribe=transcribe)
    return replace(pipeline, tokenizer=Tokenizer(VOCABULARY, special))


Plant = Callable[[OwnPipeline, pytest.MonkeyPatch], OwnPipeline]

MEL_FAULTS: Mapping[str, tuple[Plant, str]] = {
    "n_fft 512": (
        lambda right, _: replace(
            right, log_mel_frames=LogMel(replace(AUDIO, n_fft=512), slaney_filters(16000, 512, AUDIO.n_mels))
        ),
        "n_fft 512",
    ),
    "HTK filters": (lambda right, _: replace(right, log_mel_frames=LogMel(AUDIO, htk_filters())), "HTK's mel scale"),
    "mel floor of zero": (
        lambda right, patch: replace(
            right, log_mel_frames=lambda samples: without_floor(samples, patch, _FLOOR=0, _RANGE=np.inf)
        ),
        "no floor: neither",
    ),
    "no floor below the loudest": (
        lambda right, patch: replace(
            right, log_mel_frames=lambda samples: without_floor(samples, patch, _RANGE=np.inf)
        ),
        "no floor 8 decades (80 dB) below",
    ),
    "silence of zeros": (
        lambda right, _: replace(right, log_mel_frames=lambda samples: (right.log_mel_frames(samples)[0], 0.0)),
        "frames beyond the audio that are zeros",
    ),
}  # fmt: skip
"""Fault -> what plants it and what it is to be called."""


def test_ours_agrees_with_plain_numpy(tiny: Path) -> None:
    comparison = Comparison(numpy_pipeline(), load(tiny), CLIP)
    assert comparison.parts_at is None, verdict(comparison)
    assert comparison.exact
    assert all(result.agrees for result in comparison.results)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_two_equal_pipelines_agree_without_any_difference(tiny: Path, precision: str) -> None:
    comparison = Comparison(load(tiny, precision), load(tiny, precision), CLIP)
    assert verdict(comparison).startswith("THE TWO PIPELINES AGREE")
    numbers = [each for result in comparison.results for each in (result.together, result.alone) if each is not None]
    assert len(numbers) == 10
    assert {(each.largest, each.mean, each.relative) for each in numbers} == {(0.0, 0.0, 0.0)}


def test_int8_agrees_with_float32_within_its_tolerances_and_not_within_those_of_float32(tiny: Path) -> None:
    comparison = Comparison(load(tiny), load(tiny, "int8"), CLIP)
    assert comparison.parts_at is None, verdict(comparison)
    strict = Comparison(load(tiny), replace(load(tiny, "int8"), exact=True), CLIP)
    assert strict.parts_at is Stage.ENCODER


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("fault", MEL_FAULTS)
def test_a_fault_of_the_log_mel_is_found_and_named(
    tiny: Path, fault: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, name = MEL_FAULTS[fault]
    comparison = Comparison(load(tiny), plant(load(tiny, precision), monkeypatch), CLIP)
    assert comparison.parts_at is Stage.MEL
    assert name in str(recognise_fault(comparison, Stage.MEL))
    assert "there is no second fault" in verdict(comparison)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_swapped_keys_and_values_are_found_and_named(
    tiny: Path, faulty_weights: Mapping[str, Path], precision: str
) -> None:
    comparison = Comparison(load(tiny), load(faulty_weights["swapped K and V"], precision), CLIP)
    assert comparison.parts_at is Stage.CROSS
    assert recognise_fault(comparison, Stage.CROSS) == "keys and values are swapped"
    assert "It goes on into logits" in verdict(comparison)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_wrong_position_offset_is_found_in_the_logits(
    tiny: Path, faulty_weights: Mapping[str, Path], precision: str
) -> None:
    comparison = Comparison(load(tiny), load(faulty_weights["position offset"], precision), CLIP)
    assert comparison.parts_at is Stage.LOGITS
    assert "the first too" in verdict(comparison)
    assert "position offset" in verdict(comparison)


def test_a_wrong_position_offset_is_named_where_the_reference_can_try_it(faulty_weights: Mapping[str, Path]) -> None:
    comparison = Comparison(numpy_pipeline(), load(faulty_weights["position offset"]), CLIP)
    assert comparison.parts_at is Stage.LOGITS
    assert "This is the fault: positions begin at 1, where the reference's begin at 0." in verdict(comparison)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_wrong_task_token_is_found_in_the_prompt(tiny: Path, precision: str) -> None:
    right, other = load(tiny), load(tiny, precision)
    special = right.tokenizer.special
    faulty = multilingual(other, special.sot_lm)
    comparison = Comparison(multilingual(right, special.transcribe), faulty, CLIP, "en")
    assert comparison.parts_at is Stage.PROMPT
    wanted = f"{special.sot_lm} '<|startoflm|>' instead of {special.transcribe} '<|transcribe|>'"
    assert f"from position 2: {wanted}" in verdict(comparison)


def test_a_cache_that_is_read_at_the_wrong_place_is_told_from_a_wrong_first_step(tiny: Path) -> None:
    class Forgetful(OwnPipeline):
        def logits(self, *given: Any) -> Float32Array:
            logits = super().logits(*given)
            logits[2:] = logits[2:, ::-1]
            return logits

    comparison = Comparison(load(tiny), exchanged(Forgetful, load(tiny)), CLIP)
    assert comparison.parts_at is Stage.LOGITS
    assert "from step 2 on" in verdict(comparison)


def test_tokens_that_only_one_of_them_may_say_part_at_the_token_ids(tiny: Path) -> None:
    right = load(tiny)
    first = Comparison(right, right, CLIP).reference.tokens[0]
    faulty = replace(right, config=replace(right.config, suppress_tokens=(*right.config.suppress_tokens, first)))
    comparison = Comparison(right, faulty, CLIP)
    assert comparison.parts_at is Stage.TOKENS
    assert f"instead of {first}" in verdict(comparison)
    forbids = Comparison(faulty, right, CLIP)
    assert forbids.parts_at is Stage.TOKENS
    assert "never sampled" in verdict(forbids)


def second_best(right: OwnPipeline, least: float, most: float) -> tuple[int, int]:
    """A step, and a token there whose logit is between so much and so much below that of the token that is taken."""
    run = Comparison(right, right, CLIP).reference
    leads = run.logits[range(len(run.tokens)), run.tokens][:, np.newaxis] - run.logits[:-1]
    position, other = np.argwhere((leads > least) & (leads < most))[0].tolist()
    return position, other


@pytest.mark.parametrize(
    ("exact", "turned", "parts_at"),
    [(False, True, None), (True, True, Stage.LOGITS), (False, False, Stage.TOKENS)],
    ids=["int8", "float32", "int8 whose logits are for the reference's token"],
)
def test_a_token_that_is_about_as_good_to_the_reference_agrees_in_int8_where_the_logits_say_so(
    tiny: Path, *, exact: bool, turned: bool, parts_at: Stage | None
) -> None:
    class OtherToken(OwnPipeline):
        def greedy(self, *given: Any) -> tuple[int, ...]:
            tokens = super().greedy(*given)
            return *tokens[:position], other, *tokens[position + 1 :]

        def logits(self, *given: Any) -> Float32Array:
            logits = super().logits(*given)
            if turned:
                logits[position, other] = logits[position].max()
            return logits

    right = load(tiny)
    position, other = second_best(right, EXACT.tie, 0.5)
    comparison = Comparison(right, replace(exchanged(OtherToken, right), exact=exact), CLIP)
    assert comparison.parts_at is parts_at
    assert ("differ by a near tie" in verdict(comparison)) == (parts_at is None)
    assert f"from position {position}: {other} " in "".join(result.note for result in comparison.results)


def test_text_that_is_not_the_tokens_parts_at_the_text(tiny: Path) -> None:
    class Loud(OwnPipeline):
        def text(self, tokens: Sequence[int]) -> str:
            return f"{super().text(tokens)}!"

    comparison = Comparison(load(tiny), exchanged(Loud, load(tiny)), CLIP)
    assert comparison.parts_at is Stage.TEXT


def test_samples_that_are_not_the_recordings_part_at_the_samples(tiny: Path) -> None:
    class Late(OwnPipeline):
        def samples(self, clip: Path) -> Float32Array:
            return super().samples(clip)[100:]

    comparison = Comparison(load(tiny), exchanged(Late, load(tiny)), CLIP)
    assert comparison.parts_at is Stage.SAMPLES
    assert "there is no second fault" in verdict(comparison)


def test_what_comes_after_another_shape_is_not_compared(tiny: Path) -> None:
    right = load(tiny)
    filters = slaney_filters(16000, 400, 64)
    audio = replace(AUDIO, n_mels=64)
    comparison = Comparison(right, replace(right, log_mel_frames=LogMel(audio, filters)), CLIP)
    assert comparison.parts_at is Stage.MEL
    assert "it has shape (64, 100), the reference has (80, 100)" in verdict(comparison)
    assert [result.agrees for result in comparison.results[2:]] == [None] * 6


def test_what_a_reference_does_not_show_is_said(tiny: Path) -> None:
    comparison = Comparison(numpy_pipeline(shows_cross_attention=False), load(tiny), CLIP)
    assert comparison.parts_at is None
    assert "Not compared: cross-attention keys and values." in verdict(comparison)


def test_every_stage_has_likely_causes() -> None:
    assert set(CAUSES) == set(Stage)
    assert all(CAUSES.values())


def test_the_object_holds_what_the_table_says_and_only_numbers_of_json(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = MEL_FAULTS["mel floor of zero"][0](load(tiny), monkeypatch)
    comparison = Comparison(load(tiny), faulty, CLIP)
    document = json.loads(json.dumps(as_object(comparison, CLIP), allow_nan=False))
    assert (document["agree"], document["parts_at"]) == (False, "log-mel")
    assert document["stages"][1]["alone"]["largest"] is None
    assert "NaN or infinite" in document["stages"][1]["alone"]["problem"]
    assert [stage["stage"] for stage in document["stages"]] == list(Stage)
    table = list(in_words(comparison, CLIP))
    assert [line.split("  ")[0] for line in table[5:13]] == list(Stage)


# --- the command line ---


def copied(directory: Path, target: Path) -> Path:
    """A model directory whose small files may be changed; the graphs are links."""
    target.mkdir()
    for path in directory.iterdir():
        if path.is_dir():
            (target / path.name).symlink_to(path)
        else:
            shutil.copy(path, target)
    return target


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = compare.main([*map(str, arguments), "--threads", "1"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_says_that_two_equal_models_agree(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, CLIP, "--model", tiny, "--against", tiny, "--against-precision", "float32")
    assert (code, err) == (0, "")
    assert "THE TWO PIPELINES AGREE within the tolerances of int8" in out
    assert out.count("agrees") == len(Stage)


def write_filters(directory: Path, n_fft: int, filters: Float32Array) -> None:
    """The files of a model that was made with another front end."""
    path = directory / FILTERS_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "n_fft": n_fft, "filters": filters.tolist()}))
    facts = json.loads((directory / MODEL_FILE).read_text())
    facts["audio"]["n_fft"] = n_fft
    (directory / MODEL_FILE).write_text(json.dumps(facts))


FRONT_ENDS = {"n_fft 512": (512, slaney_filters(16000, 512, 80)), "HTK's mel scale": (400, htk_filters())}


@pytest.mark.parametrize("fault", FRONT_ENDS)
def test_the_command_finds_a_model_with_another_front_end(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    faulty = copied(tiny, tmp_path / "faulty")
    write_filters(faulty, *FRONT_ENDS[fault])
    code, out, err = run(capsys, CLIP, "--model", faulty, "--against", tiny)
    assert (code, err) == (1, "")
    assert "THE TWO PIPELINES PART AT: log-mel" in out
    assert "This is the fault: " in out
    assert fault in out


@pytest.mark.parametrize(("fault", "stage"), [("swapped K and V", Stage.CROSS), ("position offset", Stage.LOGITS)])
def test_the_command_finds_a_model_with_other_weights(
    tiny: Path, faulty_weights: Mapping[str, Path], capsys: pytest.CaptureFixture[str], fault: str, stage: Stage
) -> None:
    code, out, _ = run(capsys, CLIP, "--model", faulty_weights[fault], "--against", tiny, "--json")
    document = json.loads(out)
    assert (code, document["parts_at"], out.count("\n")) == (1, stage, 1)


def test_the_command_finds_the_task_token_of_a_few_words_then_nothing(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty = copied(base, tmp_path / "faulty")
    vocabulary = (faulty / VOCABULARY_FILE).read_bytes()
    for old, new in ((b"<|transcribe|>", b"<||>"), (b"<|startoflm|>", b"<|transcribe|>"), (b"<||>", b"<|startoflm|>")):
        vocabulary = vocabulary.replace(old, new)
    (faulty / VOCABULARY_FILE).write_bytes(vocabulary)
    code, out, _ = run(capsys, SAMPLES / "austen.wav", "--model", faulty, "--against", base, "--language", "English")
    assert code == 1
    assert "THE TWO PIPELINES PART AT: prompt" in out
    assert "'<|startoflm|>' instead of" in out
    assert "a few words come, then nothing" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--against", "openai-whispers"], 3, "no model is called 'openai-whispers'"),
        (["--against", "TINY", "--reference-checkpoint", "x.pt"], 2, "--reference-checkpoint goes with --against"),
        (["--against", "TINY", "--language", "klingon"], 2, "language 'klingon' is unknown"),
        (["--against", "TINY", "--model", "no/such/folder"], 3, "no/such/folder"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(
    tiny: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    given = [str(tiny) if argument == "TINY" else argument for argument in ["--model", str(tiny), *arguments]]
    found, out, err = run(capsys, CLIP, *given)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("compare: ")
    assert message in err


def test_a_recording_that_is_not_there_is_one_line(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "no-such.wav", "--model", tiny, "--against", tiny)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "no-such.wav" in err


@pytest.mark.parametrize("library", ["openai-whisper", "transformers"])
def test_a_missing_library_is_one_line_that_says_what_to_install(
    tiny: Path, capsys: pytest.CaptureFixture[str], library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, MODULES[library], None)
    code, out, err = run(capsys, CLIP, "--model", tiny, "--against", library)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"pip install {library}" in err


def accepts(_pipeline: Pipeline) -> None:
    """Only type-checked: what a comparison takes."""


def test_both_kinds_of_pipeline_have_every_stage(tiny: Path) -> None:
    accepts(load(tiny))
    accepts(numpy_pipeline())
