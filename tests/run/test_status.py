"""A pipeline tells how it is while it works, when an actor is frozen, and that it hangs when it does."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from susurrus.actors import exits
from susurrus.actors.line import STATIONS
from susurrus.actors.status import ask
from susurrus.protocol import Connection
from tests.run.conftest import DEADLINE_S, wait_until
from tests.run.test_attach import LOOKS_NOWHERE, connection_file, words

if TYPE_CHECKING:
    from tests.run.conftest import Cli, Running


def scrape(run: Running) -> str:
    """What the endpoint that a run has named on standard error says."""
    assert run.err is not None
    found = re.search(r"^metrics: (http://127\.0\.0\.1:\d+/metrics)$", run.err.text, re.MULTILINE)
    assert found is not None
    with urllib.request.urlopen(found[1], timeout=DEADLINE_S) as answer:  # noqa: S310 - ours
        text: str = answer.read().decode()
    return text


def samples(metrics: str) -> dict[str, float]:
    """The last sample of each name."""
    families = text_string_to_metric_families(metrics)
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_a_pipeline_that_works_tells_numbers_to_people_programs_and_prometheus_and_no_secrets(
    cli: Cli, austen: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "divorce.wav"
    shutil.copy(austen, secret)
    run = cli.start_waiting("--json", "--metrics", "0", "--wav", secret)
    done = run.wait_for_event("done")
    table = cli("--status", command=cli.here)
    as_json = cli("--status", connection_file(cli), "--json")
    # What is scraped is of the hub's last beat, which may have been before all was done.
    wait_until(lambda: samples(scrape(run)).get("susurrus_audio_seconds_total", 0) > 0, "numbers of what is done")
    metrics = scrape(run)
    assert (table.code, table.err, as_json.code, as_json.err) == (exits.OK, "", exits.OK, "")
    status = json.loads(as_json.out)
    actors = {actor["name"]: actor for actor in status["actors"]}
    assert list(actors) == ["hub", *STATIONS, "console"]
    assert actors["hub"]["pid"] == run.process.pid
    pids = {name: process.pid for name, process in run.actors().items()}
    assert {name: actor["pid"] for name, actor in actors.items() if name != "hub"} == pids
    assert all(actor["rss_bytes"] > 10_000_000 for actor in actors.values())
    assert (status["model"], status["jobs"]["done"], status["latency"]["decoder"]["count"]) == ("base", 1, 1)
    for name in actors:
        assert re.search(rf"^{name} +\w+ +{actors[name]['pid']} ", table.out, re.MULTILINE)
    assert samples(metrics)["susurrus_audio_seconds_total"] == status["audio_s"] == done["duration"]
    timings = done["timings"]
    assert timings["encoder_p90"] == timings["encoder"] == status["latency"]["encoder"]["p90"]
    assert timings["attempts"] == 1
    assert timings["real_time_factor"] > 0
    for told in (table.out, as_json.out, metrics):
        assert "divorce" not in told
        assert done["job"] not in told
        assert not {word for word in words(done["text"]) if len(word) > 5} & set(words(told))
    port = scrape_port(run)
    taken = cli("--wav", austen, "--metrics", port)
    assert (taken.code, taken.out, taken.err.count("\n")) == (exits.INPUT, "", 1)
    assert f"--metrics {port}" in taken.err
    assert run.finish().code == exits.INPUT  # standard input was empty


def scrape_port(run: Running) -> str:
    assert run.err is not None
    found = re.search(r"127\.0\.0\.1:(\d+)", run.err.text)
    assert found is not None
    return found[1]


def test_a_frozen_actor_keeps_no_status_from_coming_and_its_restart_is_in_it(cli: Cli) -> None:
    run = cli.start_waiting()
    connection = Connection.read(connection_file(cli))
    run.actors()["decoder"].send_signal(signal.SIGSTOP)
    assert cli("--status", command=cli.here).code == exits.OK

    def decoder_is_back() -> bool:
        (decoder,) = (actor for actor in ask(connection, DEADLINE_S).actors if actor.name == "decoder")
        return decoder.restarts > 0 and decoder.state == "ready"

    wait_until(decoder_is_back, "a decoder in the place of the frozen one")
    restarts = {actor.name: actor.restarts for actor in ask(connection, DEADLINE_S).actors}
    assert restarts == dict.fromkeys(restarts, 0) | {"decoder": 1}
    run.finish()


def test_a_frozen_hub_is_one_line_and_an_exit_code_and_answers_when_it_goes_on(cli: Cli) -> None:
    run = cli.start_waiting()
    run.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, run.process.pid, os.WSTOPPED)
    try:
        refused = cli("--status", connection_file(cli))
    finally:
        run.signal(signal.SIGCONT)
    assert (refused.code, refused.out, refused.err.count("\n")) == (exits.PIPELINE, "", 1)
    assert f"its process {run.process.pid} is stopped" in refused.err
    assert cli("--status", command=cli.here).code == exits.OK
    assert run.finish().code == exits.INPUT  # standard input was empty


def test_without_a_pipeline_there_is_one_line_and_an_exit_code(cli: Cli, tmp_path: Path) -> None:
    alone = (sys.executable, "-c", LOOKS_NOWHERE)  # where pipelines are looked for there may be others' runs
    refused = [cli.start("--status", command=alone), cli.start("--status", tmp_path / "connection.json")]
    for done in [running.finish() for running in refused]:
        assert (done.code, done.out, done.err.count("\n")) == (exits.PIPELINE, "", 1)


def test_metrics_are_for_who_starts_a_pipeline(cli: Cli, austen: Path) -> None:
    for arguments in (["--attach"], ["--status"], ["--connect", "--wav", austen]):
        refused = cli(*arguments, "--metrics", "0")
        assert (refused.code, refused.out) == (exits.INPUT, "")
        assert "--metrics is for who starts a pipeline" in refused.err
