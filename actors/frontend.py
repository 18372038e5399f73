"""The frontend actor: audio in, log-mel windows out. `python -m susurrus.actors.frontend --connection FILE`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from susurrus.actors.behaviour import Behaviour, Desk, Loaded, Work
from susurrus.actors.open_recording import OpenRecording
from susurrus.models.config import ModelConfig
from susurrus.models.mel import LogMel
from susurrus.models.silero import silero_network
from susurrus.protocol import Committed, Reissue, Submit


class FrontendBehaviour(Behaviour):
    """Reads recordings in turns, a window of each, never more than one window ahead of what the lanes can take.

    A group has one turn, and of it the recording that came first: it is shown first.
    """

    name = "frontend"
    has_inbox = False

    def __init__(self, directory: Path, audio_fd: int | None = None) -> None:
        """Keep what `load` needs.

        Args:
            directory: of the model.
            audio_fd: descriptor that the source `-` stands for.
        """
        self._directory = directory
        self._audio_fd = audio_fd
        self._recordings: dict[bytes, OpenRecording] = {}  # in the order in which they came
        self._turns: OrderedDict[str, None] = OrderedDict()  # whose turn it is comes first

    def load(self) -> Loaded:
        """Load the log-mel filters, and the speech detector's weights so that the first job does not wait for them."""
        self._config = ModelConfig.from_directory(self._directory)
        self._log_mel = LogMel.from_directory(self._directory)
        silero_network()
        return Loaded(self._config.name, self._config.audio.sample_rate, self._config.dimensions.n_mels)

    def handle(self, work: Work, desk: Desk) -> None:
        """Take a job, or the order to do what is left of it once more; it is read in `go_on`."""
        match work:
            case Submit():
                self._recording(work)
            case Reissue():
                self._recording(work.submit).begin_attempt(work)
            case Committed() if work.job in self._recordings:
                self._recordings[work.job].commit(work)
                self._drop_finished(desk)

    def go_on(self, desk: Desk) -> bool:
        """Send a window that is prepared, if a lane takes it; prepare the next one otherwise."""
        self._drop_finished(desk)
        credit, is_ahead = desk.credit, False
        for recording in self._recordings.values():
            if (window := recording.prepared) is None:
                continue
            if desk.is_given_up(recording.submit.job, recording.attempt):
                recording.prepared = None
                return True
            if (lane := recording.lane(credit)) is not None:
                recording.prepared = None
                desk.forward(recording.features(window, lane, is_only=desk.n_lanes == 1), lane=lane)
                return True
            is_ahead = True
        if is_ahead and not credit:
            return desk.n_lanes == 1 and self._look_ahead(desk)
        for recording in self._in_turn():
            if recording.has_more and not desk.is_given_up(recording.submit.job, recording.attempt):
                self._turns.move_to_end(recording.turn)
                self._read(recording, desk)
                return True
        return False

    def close(self) -> None:
        """Close what is open."""
        for job in list(self._recordings):
            self._drop(job)

    def _recording(self, submit: Submit) -> OpenRecording:
        if submit.job not in self._recordings:
            recording = OpenRecording(submit, self._config, self._log_mel, self._audio_fd)
            self._recordings[submit.job] = recording
            self._turns.setdefault(recording.turn)
        return self._recordings[submit.job]

    def _in_turn(self) -> Iterator[OpenRecording]:
        """Those of which no window is prepared, in the order in which they are to be read."""
        for turn in list(self._turns):
            for recording in list(self._recordings.values()):
                if recording.turn == turn and recording.prepared is None:
                    yield recording

    def _look_ahead(self, desk: Desk) -> bool:
        """Fill the time until a lane takes what is prepared: see what comes behind it."""
        for recording in self._recordings.values():
            if recording.prepared is not None and recording.can_look_ahead:
                with self._reading(recording, desk):
                    recording.look_ahead()
                return True
        return False

    def _read(self, recording: OpenRecording, desk: Desk) -> None:
        """Prepare the next window of a recording."""
        with self._reading(recording, desk):
            if not recording.is_open:
                desk.tell(recording.open())
            with desk.waiting() if recording.is_live else nullcontext():
                window = recording.read()
            if window is None:
                desk.tell(recording.end())
                return
            desk.tell(recording.announcement(window))
            if window.mel is not None:
                recording.prepared = window

    @contextmanager
    def _reading(self, recording: OpenRecording, desk: Desk) -> Generator[None, None, None]:
        """Tell what is worked on. What cannot be read fails its job alone."""
        job = recording.submit.job
        desk.works_on(job, recording.next_index, recording.attempt)
        try:
            yield
        except Exception as error:  # noqa: BLE001 - one bad file must not take the others with it
            desk.fail(job, error)
            self._drop(job)

    def _drop_finished(self, desk: Desk) -> None:
        for job, recording in list(self._recordings.items()):
            if recording.is_finished or desk.is_over(job):
                self._drop(job)

    def _drop(self, job: bytes) -> None:
        recording = self._recordings.pop(job)
        recording.close()
        if all(other.turn != recording.turn for other in self._recordings.values()):
            del self._turns[recording.turn]


def main() -> None:
    """The frontend as a process."""
    from susurrus.actors import process  # noqa: PLC0415 - a host that embeds the actor has a process

    parser = process.actor_parser("frontend")
    parser.add_argument("--audio-fd", type=int, metavar="N", help="descriptor that the source `-` stands for")
    process.main(
        "frontend",
        lambda settings, options: FrontendBehaviour(Path(settings.model), options.audio_fd),
        parser,
    )


if __name__ == "__main__":
    main()
