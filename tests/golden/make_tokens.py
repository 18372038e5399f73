"""Writes tokens.json: what openai-whisper answers, for the tests of the tokenizer and the decoding rules.

Run by hand with openai-whisper installed, which is no dependency of this project:

    python tests/golden/make_tokens.py
"""

# ruff: noqa: RUF001  (the texts are in many scripts, look-alikes included)

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from whisper.decoding import DecodingOptions, DecodingTask
from whisper.tokenizer import LANGUAGES, TO_LANGUAGE_CODE, get_tokenizer

TEXTS = [
    "",
    " ",
    "  ",
    "   leading and trailing   ",
    "\n",
    "\t\ttabs\r\n\r\nand lines \n end",
    "no\u00a0break\u2003space\u3000ideographic\u200bzero width",
    "\x00\x01\x1c\x1f\x7f\x85\xad controls",
    "\ufeffbyte order mark",
    " And so, my fellow Americans, ask not what your country can do for you.",
    " I'm sure they'll say it's what we've got; don't you'd they're, he's.",
    " I'M SURE THEY'LL SAY IT'S",
    " it’s a typographic apostrophe…",
    " 0 1 12 123 1234 12345678901234567890 3.14159 1,000,000 50% $9.99 24/7",
    " ٣٤٥ ½ Ⅷ x² ①",
    " hello.world_foo-bar/baz@example.com #tag (parenthesis) [bracket] {brace} <angle>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "abababababababababab cdcdcdcdcd -------- ........ !!!!!! ======",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "<|endoftext|>",
    "<|startoftranscript|><|0.00|>",
    " text with <|transcribe|> and <|notimestamps|> inside, a lone <| and |>",
    " Falsches Üben von Xylophonmusik quält jeden größeren Zwerg.",
    " Dès Noël, où un zéphyr haï me vêt de glaçons würmiens",
    " El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío, ¿no? ¡Sí!",
    " Příliš žluťoučký kůň úpěl ďábelské ódy",
    " Съешь же ещё этих мягких булок",
    " Γαζέες καὶ μυρτιὲς δὲν θὰ βρῶ",
    "我能吞下玻璃而不伤身体。「引号」，全角ＡＢＣ！",
    "私はガラスを食べられます。それは私を傷つけません。",
    "나는 유리를 먹을 수 있어요. \u1112\u1161\u11ab국어",
    " أنا قادر على أكل الزجاج و هذا لا يؤلمني؟",
    " אני יכול לאכול זכוכית וזה לא מזיק",
    " मैं काँच खा सकता हूँ और मुझे उससे",
    "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ",
    " யாமறிந்த மொழிகளிலே ሀለሐ ქართული Հայ",
    " Tôi có thể ăn thủy tinh mà không hại gì, e\u0301 decomposed",
    "😀🚀 👨\u200d👩\u200d👧\u200d👦 🇩🇪 👍🏽 ❤\ufe0f",
    " ♪ ♫ ♪♪ ♪♪♪ la la ♩♬♭♮♯",
    " 𝔸𝔹 𠀀𪚥 ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ █▓▒░",
    " \ufffd replacement and \uffff and \U0010ffff",
]  # fmt: skip

SEQUENCES = [
    [15266, 238],
    [3416, 109],
    [15266],
    [238],
    [238, 15266],
    [15266, 15266, 238],
    [3416, 3416],
    [3416, 300, 109],
    [15266, 238, 3416, 109],
    [109, 238],
    [300, 15266, 238, 264],
]  # fmt: skip
"""Halves of characters in the multilingual vocabulary: together, alone, in the wrong order, apart."""


def reference(*, multilingual: bool) -> dict[str, Any]:
    """Everything that the tests compare with, for one vocabulary."""
    tokenizer = get_tokenizer(multilingual)
    rng = np.random.default_rng(1)
    noise = [rng.integers(0, tokenizer.eot, size=12).tolist() for _ in range(20)]
    return {
        "texts": [tokenizer.encode(text, disallowed_special=()) for text in TEXTS],
        "decoded": [[ids, tokenizer.decode(ids)] for ids in SEQUENCES + noise],
        "non_speech_tokens": tokenizer.non_speech_tokens,
        "special": {
            name: getattr(tokenizer, name)
            for name in (
                "eot", "sot", "translate", "transcribe", "sot_lm", "sot_prev", "no_speech", "no_timestamps",
                "timestamp_begin",
            )
        },
        "languages": {code: tokenizer.to_language_token(code) for code in list(LANGUAGES)[:99]},
        "prompts": [prompt(multilingual=multilingual, **case) for case in PROMPTS],
        **rules(multilingual=multilingual),
    }  # fmt: skip


PROMPTS: list[dict[str, Any]] = [
    {"language": language, "task": task, "previous": list(range(1000, 1000 + previous))}
    for language, task in (("en", "transcribe"), ("de", "translate"))
    for previous in (0, 1, 222, 223, 224, 600)
]


def decoding_task(*, multilingual: bool, **options: Any) -> DecodingTask:
    """openai-whisper's decoding task over a model that has sizes and nothing else."""
    size = SimpleNamespace(n_text_ctx=448, n_audio_ctx=1500)
    decoder = SimpleNamespace(blocks=[])
    model = SimpleNamespace(is_multilingual=multilingual, num_languages=99, dims=size, decoder=decoder)
    return DecodingTask(model, DecodingOptions(without_timestamps=True, fp16=False, **options))


def prompt(*, multilingual: bool, language: str, task: str, previous: list[int]) -> dict[str, Any]:
    """A case of PROMPTS with the tokens that the decoder starts from."""
    run = decoding_task(multilingual=multilingual, language=language, task=task, prompt=previous)
    return {"language": language, "task": task, "previous": len(previous), "tokens": run.initial_tokens}


def rules(*, multilingual: bool) -> dict[str, Any]:
    """The tokens that the filters of a greedy task without timestamps forbid, first and later."""
    blank, suppress = decoding_task(multilingual=multilingual).logit_filters
    return {
        "blank": sorted([*blank.tokenizer.encode(" "), blank.tokenizer.eot]),
        "suppressed": suppress.suppress_tokens,
    }


def main() -> None:
    """Writes tokens.json beside this file."""
    golden = {
        "made_with": {name: version(name) for name in ("openai-whisper", "tiktoken")},
        "texts": TEXTS,
        "language_codes": LANGUAGES,
        "language_names": TO_LANGUAGE_CODE,
        "multilingual": reference(multilingual=True),
        "english": reference(multilingual=False),
    }
    target = Path(__file__).with_name("tokens.json")
    target.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
