"""Writes words.json and words.npz: how openai-whisper finds words and their times.

Run by hand with openai-whisper, regex and PyAV installed, which are no dependencies of this project:

    python tests/golden/make_words.py --checkpoint base.pt

words.json holds

- "splits": texts with their language, tokens, and the words and token counts of `split_to_word_tokens`;
- "corrections": cues and made-up word times, as given to `add_word_timestamps`, and the words that come out of it;
- "clips": what Whisper Base in float32 makes of recordings in samples/: cues with tokens, and their words.

words.npz holds for one clip the attention of the alignment heads, float16 (heads, tokens, positions), "attention", the
length of the prompt, "prompt", and the encoder position at which each text token and the end token begin, "starts".
"""

# ruff: noqa: RUF001  (the texts are in many scripts, look-alikes included)

from __future__ import annotations

import argparse
import json
import random
from importlib.metadata import version
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
import whisper
from whisper import timing
from whisper.tokenizer import get_tokenizer

SAMPLES = Path(__file__).parents[2] / "samples"
CLIPS = {"jfk.wav": "en", "common_voice_ja.mp3": "ja", "mls_es.opus": "es"}
ATTENTION_CLIP = "austen.wav"

TEXTS = [
    (" And so, my fellow Americans, ask not what your country can do for you.", "en"),
    (" \"Well,\" he said, \"it's 3.5% (or so) - isn't it?\" [No!] {Yes...}", "en"),
    (" He was not an ill-disposed young man; the co-op's re-run 24/7.", "en"),
    (" Wait... what?! -- Never mind: e-mail me@example.com", "en"),
    (" Hello", "en"),
    (" ...", "en"),
    (" ¿Qué tal? ¡Muy bien! “Sí”, dijo él.", "es"),
    (" Grüße, schöne Häuser – 20 °C und 5 € für «alle».", "de"),
    (" Съешь же ещё этих мягких булок, да выпей чаю.", "ru"),
    (" मैं काँच खा सकता हूँ और मुझे उससे", "hi"),
    ("나는 유리를 먹을 수 있어요. 그래도 아프지 않아요!", "ko"),
    ("私はガラスを食べられます。「それは」私を傷つけません！", "ja"),
    ("我能吞下玻璃，而不傷身體。𠀀𪚥", "zh"),
    ("I can 吃 glass 😀🚀", "zh"),
]  # fmt: skip


def splits() -> list[dict[str, Any]]:
    """Texts and what `split_to_word_tokens` makes of their tokens."""
    found = []
    for text, language in TEXTS:
        tokenizer = get_tokenizer(multilingual=True, language=language)
        tokens = tokenizer.encode(text)
        words, word_tokens = tokenizer.split_to_word_tokens([*tokens, tokenizer.eot])
        counts = list(map(len, word_tokens[:-1]))  # the last is the end token
        found.append({"text": text, "language": language, "tokens": tokens, "words": words[:-1], "counts": counts})
    return found


def made_up_case(rng: random.Random) -> dict[str, Any]:
    """Cues with times, and words of one token each with times that attention could give them, some with pauses."""
    clock, token, cues = rng.choice([0.0, 0.0, 1.5]), 0, []
    for _ in range(rng.randint(1, 3)):
        words: list[dict[str, Any]] = []
        for index in range(rng.randint(1, 6)):
            longest = rng.choice([20, 20, 20, 40, 200])
            duration = 0.02 * rng.randint(0, longest)
            texts = [" word", " word", " “", "-part"] if index else [" word"]
            words.append({"text": rng.choice(texts), "start": clock, "end": round(clock + duration, 2), "token": token})
            clock, token = round(clock + duration, 2), token + 1
        if rng.random() < 0.7:
            duration = 0.02 * rng.randint(0, 60)
            words.append(
                {"text": rng.choice([".", ",", "?"]), "start": clock, "end": round(clock + duration, 2), "token": token}
            )
            clock, token = round(clock + duration, 2), token + 1
        if words[-1]["text"] == " “":  # a mark that opens what is in the next cue: marks do not cross cues here
            words[-1]["text"] = " word"
        start = words[0]["start"] + rng.choice([0.0, 0.1, 0.8, 1.6])
        late = words[-1]["end"] - rng.choice([0.0, 0.1, 0.8, 1.6])
        end = max(start + 0.2, rng.choice([late, late, words[-1]["start"] + 0.1]))
        cues.append({"start": round(start, 2), "end": round(end, 2), "words": words})
    return {"cues": cues}


def corrections() -> list[dict[str, Any]]:
    """Made-up cases with the words that `add_word_timestamps` makes of them."""
    rng = random.Random(1)  # noqa: S311  (no secret)
    cases = [made_up_case(rng) for _ in range(60)]
    tokenizer = get_tokenizer(multilingual=True, language="en")
    for case in cases:
        words = [word for cue in case["cues"] for word in cue["words"]]
        given = [timing.WordTiming(w["text"], [w["token"]], w["start"], w["end"], 0.5) for w in words]
        segments = [
            {"seek": 0, "start": cue["start"], "end": cue["end"], "tokens": [word["token"] for word in cue["words"]]}
            for cue in case["cues"]
        ]
        timing.find_alignment = lambda *_args, given=given, **_options: given
        timing.add_word_timestamps(
            segments=segments, model=None, tokenizer=tokenizer, mel=None, num_frames=3000, last_speech_timestamp=0.0
        )
        for cue, segment in zip(case["cues"], segments, strict=True):
            words = segment["words"]
            cue["corrected"] = [[word["word"], round(word["start"], 2), round(word["end"], 2)] for word in words]
    return cases


def load_samples(name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A recording, float32 mono at 16 kHz, (n,)."""
    resampler = av.AudioResampler(format="flt", layout="mono", rate=whisper.audio.SAMPLE_RATE)
    with av.open(str(SAMPLES / name)) as container:
        frames = [frame for decoded in container.decode(audio=0) for frame in resampler.resample(decoded)]
    return np.concatenate([frame.to_ndarray()[0] for frame in [*frames, *resampler.resample(None)]])


def clips(model: Any) -> list[dict[str, Any]]:
    """Cues, tokens and words of recordings."""
    found = []
    for name, language in CLIPS.items():
        options = {"language": language, "temperature": 0.0, "condition_on_previous_text": False, "fp16": False}
        result = model.transcribe(load_samples(name), word_timestamps=True, **options)
        eot = get_tokenizer(multilingual=True, language=language).eot
        cues = [
            {
                "text": segment["text"],
                "start": segment["start"],
                "end": segment["end"],
                "tokens": [token for token in segment["tokens"] if token < eot],
                "words": [[w["word"], w["start"], w["end"], round(w["probability"], 4)] for w in segment["words"]],
            }
            for segment in result["segments"]
        ]
        found.append({"name": name, "language": language, "cues": cues})
    return found


def attention(model: Any) -> dict[str, Any]:
    """The alignment heads' attention of a clip, rounded to float16, and the steps of `find_alignment` from there."""
    samples = load_samples(ATTENTION_CLIP)
    mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(samples), model.dims.n_mels)
    tokenizer = get_tokenizer(multilingual=True, language="en", task="transcribe")
    text = tokenizer.encode(" He was not an ill-disposed young man.")
    prompt = [*tokenizer.sot_sequence, tokenizer.no_timestamps]
    scores: dict[int, Any] = {}
    for index, block in enumerate(model.decoder.blocks):
        block.cross_attn.register_forward_hook(lambda _m, _i, outs, index=index: scores.update({index: outs[-1][0]}))
    with torch.no_grad(), whisper.model.disable_sdpa():
        model(mel.unsqueeze(0), torch.tensor([[*prompt, *text, tokenizer.eot]]))
    heads = [scores[layer][head] for layer, head in model.alignment_heads.indices().T.tolist()]
    positions = len(samples) // whisper.audio.HOP_LENGTH // 2
    weights = torch.stack(heads)[:, :, :positions].softmax(dim=-1).half()
    std, mean = torch.std_mean(weights.float(), dim=-2, keepdim=True, unbiased=False)
    smooth = timing.median_filter((weights.float() - mean) / std, 7)
    rows, columns = timing.dtw(-smooth.mean(axis=0)[len(prompt) - 1 : -1])
    jumps = np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)
    return {"attention": weights.numpy(), "prompt": np.array(len(prompt)), "starts": columns[jumps]}


def main() -> None:
    """Writes words.json and words.npz beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="openai-whisper's .pt file of Whisper Base, or its name")
    options = parser.parse_args()
    model = whisper.load_model(options.checkpoint, device="cpu").float().eval()
    model.set_alignment_heads(whisper._ALIGNMENT_HEADS["base"])  # a .pt file does not bring them
    golden = {
        "made_with": {"openai-whisper": version("openai-whisper")},
        "splits": splits(),
        "clips": clips(model),
        "corrections": corrections(),
    }
    target = Path(__file__).with_name("words.json")
    target.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
    np.savez_compressed(target.with_suffix(".npz"), **attention(model))


if __name__ == "__main__":
    main()
