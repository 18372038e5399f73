"""The vocabulary: one frozen dataclass per message. `docs/protocol.md` is the specification.

What clients ask is in `requests`, what is published in `events`, the hub's word with its actors in `control`, the
windows and arrays they work on in `work`, and what all of these are made of in `values`.

Requests are verbs, results are nouns. `job`, `window`, `attempt` and `seq` travel in the frame's header, every
other field in its body; arrays travel as raw buffers behind the body. Times are seconds on the job's audio time
line unless the name says otherwise.

Who says what to whom:

    client   -> hub       Hello Submit Cancel SnapshotRequest StatusRequest Pong
    hub      -> client    Accepted Rejected Snapshot Status Error Ping
    hub      -> actor     Submit Reissue Committed Fence Cancel Downstream Upstream Credit Ping Stop Rejected
    actor    -> hub       Hello Ready Pong Credit Working Redo Started Window AudioEnd Partial Segment
                          Failed Error Stopped
    frontend -> encoder   Features
    encoder  -> decoder   HiddenStates
    hub      => everybody Welcome Started Window Partial Segment Done Failed Cancelled Beat Stopped   (published)
"""

from __future__ import annotations

from susurrus.protocol import control, events, requests, work
from susurrus.protocol.values import Message


def message_types() -> dict[str, type[Message]]:
    """Every message of the vocabulary by its name on the wire."""
    modules = (control, requests, work, events)
    values = [value for module in modules for value in vars(module).values()]
    found = [value for value in values if isinstance(value, type) and issubclass(value, Message)]
    return {message.TYPE: message for message in found if message is not Message}
