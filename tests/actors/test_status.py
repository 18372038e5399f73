"""Who asks hears how the pipeline is, whatever its actors do, and nothing of what was said in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
import zmq

from susurrus.actors.client import PipelineError
from susurrus.actors.status import as_table, ask, real_time_factor, to_json
from susurrus.actors.vitals import actor_statuses, usage
from susurrus.protocol import (
    Cancel,
    Connection,
    Credit,
    Error,
    HubPort,
    Identity,
    Message,
    Redo,
    RuntimeFolder,
    Status,
    StatusRequest,
    Submit,
    Transport,
    Working,
    encode,
    new_id,
)
from tests.actors.fakes import (
    PATIENCE_S,
    House,
    audio_end,
    partial,
    segment,
    settle,
    started,
    submit,
    window,
)

SOURCE, SAID = "/home/alice/divorce.wav", " meet me at nine"


def ask_until(connection: Connection, wanted: Callable[[Status], bool]) -> Status:
    """What changes when the hub next looks at its sockets needs asking again."""
    deadline = time.monotonic() + PATIENCE_S
    while not wanted(status := ask(connection, PATIENCE_S)):
        assert time.monotonic() < deadline, status
    return status


def transcribed(house: House) -> Status:
    """The status of a pipeline that has done one job of two windows, and has begun another."""
    house.start_line()
    client, first, second = house.actor("client"), submit(source=SOURCE), submit(source=SOURCE)
    client.say(first, second)
    frontend, decoder = house.actors["frontend"], house.actors["decoder"]
    frontend.hear(Submit)
    job = first.job
    frontend.say(started(job), window(job, 0), window(job, 1))
    settle(frontend)
    decoder.say(partial(job, 0, SAID), segment(job, 0, SAID), segment(job, 1, SAID))
    settle(decoder)
    frontend.say(audio_end(job, 2))
    decoder.say(Working(job=second.job, window=0, attempt=1))
    settle(client, frontend, decoder)
    return ask(house.connection, PATIENCE_S)


def test_a_status_has_the_numbers_of_what_was_done(house: House) -> None:
    status = transcribed(house)
    assert status.model == "m"
    assert status.jobs == {"queued": 0, "running": 1, "done": 1, "failed": 0, "cancelled": 0, "rejected": 0}
    seconds = {name: (values["count"], values["p50"]) for name, values in status.latency.items()}
    first_partial = seconds.pop("first_partial")
    assert seconds == {"frontend": (1, 0.0625), "encoder": (2, 0.25), "decoder": (2, 0.5)}
    assert first_partial[0] == 1
    assert status.audio_s == 60.0
    assert 0 < status.busy_s <= status.uptime_s
    assert real_time_factor(status) == 60.0 / status.busy_s
    states = {actor.name: actor.state for actor in status.actors}
    assert states == {"hub": "ready", "frontend": "ready", "encoder": "ready", "decoder": "working"}
    assert status.actors[0].pid == os.getpid()


def test_neither_names_nor_text_are_in_a_status(house: House) -> None:
    status = transcribed(house)
    job = house.actors["client"].identity.instance.hex()
    for told in (to_json(status), "\n".join(as_table(status)), repr(encode(status, sender="hub", instance=new_id()))):
        assert not any(secret in told for secret in ("alice", "divorce", "clip", "meet", "nine", job))


def test_json_has_every_field_of_the_status_in_one_strict_line(house: House) -> None:
    status = transcribed(house)
    line = to_json(status)
    assert "\n" not in line
    told = json.loads(line, parse_constant=pytest.fail)
    assert told.pop("real_time_factor") == real_time_factor(status)
    assert [actor["state"] for actor in told["actors"]] == [actor.state for actor in status.actors]
    assert Status(**{**told, "actors": status.actors}) == status


def test_a_table_has_a_row_for_every_actor_and_every_stage(house: House) -> None:
    table = as_table(transcribed(house))
    firsts = [line.split("  ")[0] for line in table]
    for name in ("hub", "frontend", "encoder", "decoder", "first partial", "seconds for"):
        assert name in firsts
    assert any("1 running, 1 done" in line for line in table)


def test_a_pipeline_that_only_starts_has_a_status_too(house: House) -> None:
    status = ask(house.connection, PATIENCE_S)
    assert {(actor.state, actor.pid) for actor in status.actors[1:]} == {("starting", 0)}
    assert (status.latency, real_time_factor(status)) == ({}, None)
    assert json.loads(to_json(status))["real_time_factor"] is None
    assert len({len(line) > 0 for line in as_table(status)}) == 2


def test_who_subscribes_and_who_leaves_is_counted(house: House) -> None:
    watchers = [house.subscriber() for _ in range(3)]
    assert ask(house.connection, PATIENCE_S).subscribers == 3
    watchers[1].close()
    ask_until(house.connection, lambda status: status.subscribers == 2)
    house.subscriber(b"hub/")
    for watcher in (watchers[0], watchers[2]):
        watcher.close()
    ask_until(house.connection, lambda status: status.subscribers == 1)


def test_bad_frames_and_jobs_that_were_not_taken_are_counted(house: House) -> None:
    peer = house.actor("noise")
    for _ in range(5):
        peer.line.socket.send_multipart([b"noise", b"", b""])
    request = submit()
    peer.say(Submit(**{name: getattr(request, name) for name in ("job", "source", "name")}, journal="/tmp/j"))  # noqa: S108
    settle(peer)
    status = ask(house.connection, PATIENCE_S)
    assert (status.bad_frames, status.jobs["rejected"]) == (5, 1)


def state_of(house: House, name: str) -> str:
    actors = ask(house.connection, PATIENCE_S).actors
    return next(actor.state for actor in actors if actor.name == name)


def test_an_actor_works_until_it_says_that_it_is_done_or_its_job_is_over(house: House) -> None:
    house.start_line()
    client, request, frontend = house.actor("client"), submit(), house.actors["frontend"]
    client.say(request)
    frontend.hear(Submit)

    def say_working(job: bytes) -> None:
        frontend.say(Working(job=job, window=0, attempt=1))
        settle(frontend)

    say_working(request.job)
    assert state_of(house, "frontend") == "working"
    frontend.say(audio_end(request.job, 1))
    settle(frontend)
    assert state_of(house, "frontend") == "ready"
    say_working(request.job)
    client.say(Cancel(job=request.job))
    settle(client)
    assert state_of(house, "frontend") == "ready"


def test_a_decoder_works_until_it_has_done_the_last_of_its_windows(house: House) -> None:
    house.start_line()
    client, request, decoder = house.actor("client"), submit(), house.actors["decoder"]
    job = request.job
    client.say(request)
    house.actors["frontend"].hear(Submit)
    house.actors["frontend"].say(started(job), *(window(job, index) for index in range(3)))
    settle(house.actors["frontend"])

    def state_after(*messages: Message) -> str:
        decoder.say(*messages)
        settle(decoder)
        return state_of(house, "decoder")

    assert state_after(*(Working(job, index, 1) for index in range(3))) == "working"
    assert state_after(segment(job, 1), Credit(windows=1)) == "working"
    assert state_after(segment(job, 0), Credit(windows=1)) == "working"
    assert state_after(segment(job, 2), Credit(windows=1)) == "ready"


def test_a_decoder_does_not_work_on_what_it_has_dropped(house: House) -> None:
    house.start_line()
    client, request, decoder = house.actor("client"), submit(), house.actors["decoder"]
    client.say(request)
    house.actors["frontend"].hear(Submit)
    decoder.say(*(Working(request.job, index, 1) for index in range(2)), Redo(request.job, 0, 1), Credit(windows=1))
    settle(decoder)
    assert state_of(house, "decoder") == "ready"


def test_one_that_was_lost_is_restarting_and_one_that_is_back_is_starting(house: House) -> None:
    house.start_line()
    settle(*house.actors.values())
    line, is_open = house.hub._line, house.hub._ledger.is_open
    line["encoder"].leave(0.0)
    line["encoder"].watch.lost(0.0)
    by_name = {actor.name: actor for actor in actor_statuses(line, {}, {"encoder"}, is_open)}
    assert (by_name["encoder"].state, by_name["encoder"].restarts, by_name["encoder"].pid) == ("restarting", 1, 0)
    again = {actor.name: actor for actor in actor_statuses(line, {"encoder": os.getpid()}, set(), is_open)}
    assert (again["encoder"].state, again["encoder"].pid) == ("starting", os.getpid())
    assert again["encoder"].rss_bytes > 0


def test_memory_and_time_of_a_process_are_as_psutil_has_them() -> None:
    code = "x = bytearray(30_000_000); sum(range(3_000_000)); print(flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        rss_bytes, cpu_s = usage(process.pid)
        wanted = psutil.Process(process.pid)
        assert rss_bytes == pytest.approx(wanted.memory_info().rss, rel=0.02)
        assert cpu_s == pytest.approx(sum(wanted.cpu_times()[:2]), abs=0.03)
    finally:
        process.kill()
        process.communicate()
    assert usage(process.pid) == (0, 0.0)


@pytest.fixture
def scripted() -> Iterator[tuple[HubPort, Connection]]:
    """A hub that says what the test has it say, and a connection to it."""
    context: zmq.Context[Any] = zmq.Context()
    with RuntimeFolder.create() as folder, context:
        transport, identity = Transport.choose(folder.path), Identity.new("hub")
        with HubPort(context, transport, identity) as port:
            yield port, Connection(4711, identity.instance, port.endpoint, "", transport, 0.0)


def test_a_hub_that_does_not_answer_is_given_up_in_one_line(scripted: tuple[HubPort, Connection]) -> None:
    with pytest.raises(PipelineError, match=r"does not answer within 0\.05 s: its process 4711 is stopped") as raised:
        ask(scripted[1], timeout=0.05)
    assert "\n" not in str(raised.value)


def test_a_hub_that_does_not_know_the_question_is_told_by_its_answer(scripted: tuple[HubPort, Connection]) -> None:
    port, connection = scripted
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, connection, PATIENCE_S)
        received = port.receive(PATIENCE_S)
        assert received is not None
        peer, question = received
        assert question.message == StatusRequest()
        assert question.header.reply_to is not None  # else a hub that does not know it says nothing
        port.socket.send_multipart([peer, b"noise"])
        port.send(peer, Error(code="unknown_type", text="what?"))
        with pytest.raises(PipelineError, match="of another version"):
            asking.result(PATIENCE_S)
