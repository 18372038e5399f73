"""Codes and English names of Whisper's languages, in the order of its language tokens.

The list is that of whisper/tokenizer.py (openai-whisper); Cantonese came with large-v3. Which of them a model
knows is in its vocabulary (`SpecialTokens.languages`).
"""

from __future__ import annotations

from difflib import get_close_matches

from susurrus.models.errors import OptionError

_NAMES = """
en english, zh chinese, de german, es spanish, ru russian, ko korean, fr french, ja japanese, pt portuguese,
tr turkish, pl polish, ca catalan, nl dutch, ar arabic, sv swedish, it italian, id indonesian, hi hindi,
fi finnish, vi vietnamese, he hebrew, uk ukrainian, el greek, ms malay, cs czech, ro romanian, da danish,
hu hungarian, ta tamil, no norwegian, th thai, ur urdu, hr croatian, bg bulgarian, lt lithuanian, la latin,
mi maori, ml malayalam, cy welsh, sk slovak, te telugu, fa persian, lv latvian, bn bengali, sr serbian,
az azerbaijani, sl slovenian, kn kannada, et estonian, mk macedonian, br breton, eu basque, is icelandic,
hy armenian, ne nepali, mn mongolian, bs bosnian, kk kazakh, sq albanian, sw swahili, gl galician, mr marathi,
pa punjabi, si sinhala, km khmer, sn shona, yo yoruba, so somali, af afrikaans, oc occitan, ka georgian,
be belarusian, tg tajik, sd sindhi, gu gujarati, am amharic, yi yiddish, lo lao, uz uzbek, fo faroese,
ht haitian creole, ps pashto, tk turkmen, nn nynorsk, mt maltese, sa sanskrit, lb luxembourgish, my myanmar,
bo tibetan, tl tagalog, mg malagasy, as assamese, tt tatar, haw hawaiian, ln lingala, ha hausa, ba bashkir,
jw javanese, su sundanese, yue cantonese
"""

_ALIASES = """
my burmese, ca valencian, nl flemish, ht haitian, lb letzeburgesch, ps pushto, pa panjabi, ro moldavian,
ro moldovan, si sinhalese, es castilian, zh mandarin
"""

SAME_CODE = {"iw": "he", "jv": "jw"}
"""Other ISO 639 codes of two of the languages: `iw` is Hebrew in English-only vocabularies, `jv` is today's
code of Javanese."""


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(code, name) for code, _, name in (entry.strip().partition(" ") for entry in text.split(","))]


LANGUAGES = dict(_pairs(_NAMES))
"""Code -> English name in lower case, in the order of the language tokens."""

_CODES = {name: code for code, name in _pairs(_NAMES) + _pairs(_ALIASES)}


def to_code(language: str) -> str:
    """Finds the code of a language given as code or English name, in any case.

    Args:
        language: Such as `de`, `German` or `Flemish`.

    Raises:
        OptionError: No such language; the message names the nearest.
    """
    wanted = language.strip().lower()
    if wanted in LANGUAGES:
        return wanted
    if code := SAME_CODE.get(wanted) or _CODES.get(wanted):
        return code
    near = get_close_matches(wanted, _CODES, n=1, cutoff=0.1)  # names only: a wrong code is near to every code
    hint = f"did you mean {near[0]} ({_CODES[near[0]]})?" if near else "give a code such as en, or a name"
    raise OptionError(f"language {language!r} is unknown; {hint}")
