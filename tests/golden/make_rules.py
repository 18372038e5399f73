"""Writes rules.npz: what openai-whisper's filters forbid in decoding with timestamps.

Run by hand with openai-whisper installed, which is no dependency of this project:

    python tests/golden/make_rules.py --checkpoint base.pt

For either vocabulary, "multilingual" and "english", the file holds a row for each case: its name, "<vocabulary>/names";
the tokens sampled so far, int32 filled up with -1, "<vocabulary>/tokens"; and which logits are minus infinity after all
filters, as bits, "<vocabulary>/forbidden". The logits of a case "<prefix>,<boost>" are made by `logits`, from that name
alone. Those of a case "recorded <step>" are Whisper Base's for samples/jfk.wav played twice, in steps of 1/2, int8
(n_vocab,) under the case's name.
"""

import argparse
import wave
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

BOOSTS = (-9.0, -5.0, -4.5, -4.25, -4.0, 0.0, 30.0)
"""Added to the timestamps' logits. Near -4.3 they are together as probable as the most probable other token."""

RECORDED = (0, 13, 25, 26, 27, 52)
"""Steps whose logits are kept: the first, in a text, before, in and after the timestamps between two, the end."""

RANDOM_PREFIXES = 20


def logits(case: str, n_vocab: int, timestamp_begin: int) -> NDArray[np.float32]:
    """The logits of a case, float32 (n_vocab,), from -10 to 10 by integer arithmetic, boosted timestamps included."""
    seed = sum(case.encode())
    i = np.arange(n_vocab, dtype=np.uint64) + np.uint64(1 + 100_003 * seed)
    mixed = i * np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplicative hash, twice
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (mixed >> np.uint64(40)).astype(np.float64) / 2**23 * 10 - 10
    values[timestamp_begin:] += float(case.split(",")[1])
    return values.astype(np.float32)


def prefixes(special: Any) -> dict[str, list[int]]:
    """Tokens sampled so far, by name: what can come up, then what never should."""
    begin = special.timestamp_begin
    end = begin + 1500  # <|30.00|>
    text, word = [2425, 11, 577], 366
    named = {
        "nothing": [],
        "one timestamp": [begin],
        "late timestamp": [begin + 50],
        "text": [begin, *text],
        "closed": [begin, *text, begin + 100],
        "pair": [begin, *text, begin + 100, begin + 101],
        "equal pair": [begin, *text, begin + 100, begin + 100],
        "text again": [begin, *text, begin + 100, begin + 100, word],
        "closed again": [begin, *text, begin + 100, begin + 100, word, begin + 101],
        "closed at 30": [begin, *text, end],
        "pair at 30": [begin, *text, end, end],
        "text at 30": [begin, *text, end, end, word],
        "language": [begin, *text, special.to_language_token("de")],
        "language closed": [begin, special.to_language_token("de"), begin + 7],
        "two at the start": [begin, begin + 10],
        "three": [begin, *text, begin + 5, begin + 5, begin + 6],
        "no timestamp": text,
        "one word": [word],
        "late first": [word, begin + 3],
        "backwards": [begin + 40, word, begin + 20],
    }
    rng = np.random.default_rng(3)
    for index in range(RANDOM_PREFIXES):
        random = rng.integers(0, special.eot, size=rng.integers(1, 40))
        stamped = rng.random(random.shape) < 0.3
        random[stamped] = begin + np.sort(rng.integers(0, 1501, size=stamped.sum()))
        named[f"random {index}"] = random.tolist()
    return named


def decoding_task(model: Any) -> Any:
    """openai-whisper's greedy decoding with timestamps, everything else as it comes."""
    decoding = import_module("whisper.decoding")
    return decoding.DecodingTask(model, decoding.DecodingOptions(language="en", fp16=False))


def forbidden(task: Any, values: NDArray[np.float32], tokens: list[int]) -> NDArray[np.uint8]:
    """Where the filters of a task leave minus infinity, as bits."""
    torch = import_module("torch")
    filtered = torch.from_numpy(values.copy())[None]
    context = torch.tensor([[*task.initial_tokens, *tokens]])
    for rule in task.logit_filters:
        rule.apply(filtered, context)
    return np.packbits(np.isneginf(filtered[0].numpy()))


def made_up(*, multilingual: bool) -> dict[str, tuple[list[int], NDArray[np.uint8]]]:
    """Tokens and forbidden logits of the cases whose logits `logits` makes."""
    size = SimpleNamespace(n_text_ctx=448, n_audio_ctx=1500)
    decoder = SimpleNamespace(blocks=[])
    task = decoding_task(SimpleNamespace(is_multilingual=multilingual, num_languages=99, dims=size, decoder=decoder))
    special = task.tokenizer
    found = {}
    for name, tokens in prefixes(special).items():
        for boost in BOOSTS:
            case = f"{name},{boost:g}"
            values = logits(case, special.timestamp_begin + 1501, special.timestamp_begin)
            found[case] = (tokens, forbidden(task, values, tokens))
    return found


def record(checkpoint: str) -> tuple[list[int], dict[int, NDArray[np.int8]], Any]:
    """What a real model says to a real recording: its tokens, its logits at some steps, and the task."""
    torch, whisper = import_module("torch"), import_module("whisper")
    model = whisper.load_model(checkpoint, device="cpu")
    with wave.open(str(Path(__file__).parents[2] / "samples" / "jfk.wav")) as file:
        once = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 2**15
    mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(np.concatenate([once, once])))
    tokens = whisper.decode(model, mel, whisper.DecodingOptions(language="en", fp16=False)).tokens
    task, kept = decoding_task(model), {}
    with torch.no_grad():
        hidden_states = model.embed_audio(mel[None])
        for step in RECORDED:
            context = torch.tensor([[*task.initial_tokens, *tokens[:step]]])
            found = model.logits(context, hidden_states)[0, -1].numpy()
            kept[step] = np.clip(np.round(found * 2), -128, 127).astype(np.int8)
    return tokens, kept, task


def table(cases: dict[str, tuple[list[int], NDArray[np.uint8]]]) -> dict[str, NDArray[Any]]:
    """Cases as arrays with a row for each."""
    width = max(len(tokens) for tokens, _ in cases.values())
    return {
        "names": np.array([*cases]),
        "tokens": np.array([tokens + [-1] * (width - len(tokens)) for tokens, _ in cases.values()], np.int32),
        "forbidden": np.stack([bits for _, bits in cases.values()]),
    }


def main() -> None:
    """Writes rules.npz beside this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="Whisper Base as openai-whisper loads it")
    tokens, recorded, task = record(parser.parse_args().checkpoint)
    cases = {"multilingual": made_up(multilingual=True), "english": made_up(multilingual=False)}
    for step, kept in recorded.items():
        bits = forbidden(task, kept * np.float32(0.5), tokens[:step])
        cases["multilingual"][f"recorded {step}"] = (tokens[:step], bits)
    arrays: dict[str, Any] = {
        f"{kind}/{name}": array for kind, found in cases.items() for name, array in table(found).items()
    }
    arrays |= {f"recorded {step}": kept for step, kept in recorded.items()}
    np.savez_compressed(Path(__file__).with_name("rules.npz"), **arrays)


if __name__ == "__main__":
    main()
