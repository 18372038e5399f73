"""What is measured: each task gives a part of `results.json`. Tables and plots are made from that alone."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import soundfile

from susurrus.models import SusurrusError
from tests.bench import cold
from tests.bench.contest import Contest, Rules
from tests.bench.corpus import BenchError, Clip, load_samples, read_corpus
from tests.bench.fleet import Fleet, WorkerError
from tests.bench.footprint import cpu_seconds, wait_until_quiet
from tests.bench.lengths import RATE, long_recordings
from tests.bench.roster import LONG, OURS, ROOT, SHORT, Contestant, Entry, for_long, for_short

Part = dict[str, Any]

LONGEST_SHORT_S = 30.0
IDLE_S = 10.0
NEAR = ("openvino", "faster-whisper")


@dataclass(frozen=True, slots=True)
class Setting:
    """All that tasks need."""

    fleet: Fleet
    entries: Sequence[Entry]
    corpus: Path
    folder: Path
    """For recordings that are made."""
    threads: int
    rounds: int
    limit_s: float
    """For one engine in one task."""
    n_clips: int
    clips_set: str
    long: str
    """Path in the corpus."""
    minutes: Sequence[float]
    """Lengths of the recordings of the task `growth`."""

    def rules(self, rounds: int, *, watches_memory: bool = False) -> Rules:
        """For a contest."""
        return Rules(rounds, self.limit_s, watches_memory=watches_memory)

    @property
    def own(self) -> Entry:
        """This project."""
        return self.entries[0]

    def sample(self, name: str) -> Clip:
        """One of this checkout's own recordings, as a file that all engines read."""
        return self._as_wav(next(clip for clip in read_corpus(ROOT / "samples") if clip.name == name))

    def long_clip(self) -> Clip:
        """The long recording.

        Raises:
            BenchError: the corpus has none of that name.
        """
        for clip in read_corpus(self.corpus):
            if clip.name == self.long:
                return self._as_wav(clip)
        raise BenchError(f"--long {self.long}: {self.corpus / 'manifest.jsonl'} has no such recording")

    def clips(self) -> list[Clip]:
        """Recordings of at most 30 s with a text, spread over the set.

        Raises:
            BenchError: there are none.
        """
        found = []
        for clip in read_corpus(self.corpus, self.clips_set):
            try:
                seconds = len(load_samples(clip.path, RATE, round(RATE * (LONGEST_SHORT_S + 1)))) / RATE
            except SusurrusError:
                continue
            if clip.text and clip.language == "en" and 0 < seconds <= LONGEST_SHORT_S:
                found.append(clip)
        if not found:
            raise BenchError(f"--set {self.clips_set}: no English recording of at most {LONGEST_SHORT_S:.0f} s")
        step = max(1, len(found) // self.n_clips)
        return [self._as_wav(clip) for clip in found[::step][: self.n_clips]]

    def _as_wav(self, clip: Clip) -> Clip:
        """The same as 16-bit mono WAV at 16 kHz, which every engine reads without a decoder."""
        path = self.folder / f"{clip.name.replace('/', '_')}.wav"
        if not path.exists():
            soundfile.write(path, load_samples(clip.path, RATE, 4 * 3600 * RATE), RATE, "PCM_16")
        return replace(clip, path=path)


def short(setting: Setting, name: str, rounds: int, *, watches_memory: bool) -> Part:
    """A short recording, everything loaded and warm; before, once with an eye on memory."""
    clip = setting.sample(name)
    contest = Contest(setting.fleet, list(for_short(setting.entries)), setting.rules(rounds))
    contest.warm_up(clip.path, watches_memory=watches_memory)
    contest.run([clip])
    contest.score([clip])
    return {"audio_s": soundfile.info(clip.path).duration, "rows": contest.to_json()}


def clips(setting: Setting) -> Part:
    """Many short recordings, once each, for word error rates beside the times."""
    found = setting.clips()
    contest = Contest(setting.fleet, list(for_short(setting.entries)), setting.rules(1))
    contest.warm_up(found[0].path)
    contest.run(found)
    contest.score(found)
    return {"clips": len(found), "audio_s": _seconds(found), "rows": contest.to_json()}


def many(setting: Setting) -> Part:
    """The same recordings given at once: this project works ahead, the peers that come near take one after another."""
    found = setting.clips()
    near = [entry for entry in setting.entries if entry.kind in NEAR]
    everybody = (*for_long(setting.entries[:1]), *for_short(near))
    contestants = [replace(contestant, options=SHORT[contestant.entry.kind]) for contestant in everybody]
    contest = Contest(setting.fleet, contestants, setting.rules(1))
    contest.warm_up(found[0].path)
    contest.run_together(found)
    contest.score(found)
    return {"clips": len(found), "together": True, "audio_s": _seconds(found), "rows": contest.to_json()}


def long(setting: Setting) -> Part:
    """A recording of many minutes, with an eye on memory all the time."""
    clip, warm = setting.long_clip(), setting.sample("jfk.wav")
    rules = setting.rules(max(1, (setting.rounds + 1) // 2), watches_memory=True)
    contest = Contest(setting.fleet, list(for_long(setting.entries)), rules)
    contest.warm_up(warm.path)
    contest.run([clip])
    contest.score([clip])
    return {"audio_s": soundfile.info(clip.path).duration, "rows": contest.to_json()}


def cold_start(setting: Setting) -> Part:
    """Processes from start to exit; the workers sleep meanwhile."""
    clip = setting.sample("jfk.wav")
    commands = {entry.name: cold.command(entry, clip.path, "en", setting.threads) for entry in setting.entries}
    runs = cold.interleave(commands, setting.rounds, setting.fleet.say)
    rows = {}
    for name, series in runs.items():
        if series:
            rows[name] = {
                "first_s": [round(run.first_s, 4) for run in series],
                "total_s": [round(run.exit_s, 4) for run in series],
                "texts": {clip.name: series[-1].text},
            }
    return {"audio_s": soundfile.info(clip.path).duration, "rows": rows}


def idle(setting: Setting) -> Part:
    """Processor time that loaded engines use while nobody asks them anything, all of them at once."""
    pids = {}
    for contestant in for_short(setting.entries):
        try:
            pids[contestant.label] = setting.fleet.worker(contestant).pid
        except WorkerError as error:
            setting.fleet.say(f"  {contestant.label}: {error}")
    wait_until_quiet(list(pids.values()), patience_s=5.0)
    before = {label: cpu_seconds(pid) for label, pid in pids.items()}
    time.sleep(IDLE_S)
    rows = {label: {"cpu_share": round((cpu_seconds(pid) - before[label]) / IDLE_S, 4)} for label, pid in pids.items()}
    return {"seconds": IDLE_S, "rows": rows}


def growth(setting: Setting) -> Part:
    """Recordings of several lengths, each in a pipeline of its own: time and memory for a minute of audio."""
    spoken, points = read_corpus(setting.corpus, setting.clips_set), []
    contestant = Contestant(OURS, replace(setting.own, name=f"{OURS}, growth"), LONG[setting.own.kind])
    for minutes in setting.minutes:
        (recording,) = long_recordings(spoken, setting.folder, minutes / 60, minutes * 60)
        contest = Contest(setting.fleet, [contestant], Rules(1, 0.0, timeout_s=300 + 60 * minutes, watches_memory=True))
        contest.warm_up(setting.sample("jfk.wav").path)
        contest.run([Clip(recording.path.name, recording.path, None, "en")])
        row = contest.rows[OURS]
        recording.path.unlink()
        setting.fleet.dismiss(contestant)
        if not row.total_s:
            break
        points.append({"minutes": minutes, **{key: row.to_json()[key] for key in ("total_s", "cpu_s", "peak_mb")}})
        setting.fleet.say(f"  {minutes:g} min: {row.total_s[0]:.1f} s")
    return {"points": points}


def budget(setting: Setting) -> Part:
    """Where the time of the 11 s recording goes, and what the machine could do at best."""
    clip = setting.sample("jfk.wav")
    words = [setting.own.python, "-m", "tests.bench.budget", str(clip.path)]
    words += ["--model", setting.own.model, "--threads", str(setting.threads), "--rounds", str(setting.rounds)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    if ended.returncode:
        raise BenchError(f"the budget cannot be had: {(ended.stderr.strip().splitlines() or ['it says nothing'])[-1]}")
    found: Part = json.loads(ended.stdout)
    return found


def _seconds(found: Sequence[Clip]) -> float:
    return float(sum(soundfile.info(clip.path).duration for clip in found))


TASKS: Mapping[str, Callable[[Setting], Part]] = {
    "short": lambda setting: short(setting, "jfk.wav", setting.rounds, watches_memory=True),
    "small": lambda setting: short(setting, "austen.wav", setting.rounds, watches_memory=False),
    "idle": idle,
    "clips": clips,
    "many": many,
    "cold": cold_start,
    "long": long,
    "budget": budget,
    "growth": growth,
}
"""By the names that `--only` takes, in the order in which they are done."""
