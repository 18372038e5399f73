"""Array fields to raw buffers and back: the only module that touches NumPy, once there is an array."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from susurrus.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from susurrus.protocol.packing import Frame
    from susurrus.protocol.schema import Plan
    from susurrus.protocol.values import Message

MAX_ARRAY_DIMENSIONS = 4


def pack_arrays(plan: Plan, message: Message) -> tuple[list[memoryview], list[dict[str, Any]]]:
    """Raw buffers of the array fields and the header's description of them.

    Raises:
        ProtocolError: `bad_array`; one is not C-contiguous, empty, or not of its dtype.
    """
    if not plan.arrays:
        return [], []
    import numpy as np  # noqa: PLC0415 - hub, console and clients do without: it is a third of their start

    buffers, described = [], []
    for name, dtype in plan.arrays:
        array = getattr(message, name)
        if not isinstance(array, np.ndarray) or array.dtype.str != dtype:
            raise ProtocolError("bad_array", f"{name}: an array of {dtype} expected")
        if not array.flags.c_contiguous:  # pyzmq would send the memory in its order: scrambled, without an error
            raise ProtocolError("bad_array", f"{name}: not C-contiguous; use numpy.ascontiguousarray")
        if not 1 <= array.ndim <= MAX_ARRAY_DIMENSIONS or array.size == 0:
            raise ProtocolError("bad_array", f"{name}: shape {array.shape} cannot travel")
        buffers.append(array.data.cast("B"))
        described.append({"dtype": dtype, "shape": list(array.shape)})
    return buffers, described


def unpack_arrays(plan: Plan, described: Any, buffers: Sequence[Frame]) -> dict[str, NDArray[Any]]:
    """The array fields of one message: read-only views of the buffers, or copies where those are not aligned.

    Raises:
        ProtocolError: `bad_array`; buffers, description and declaration do not agree.
    """
    if type(described) is not list or not len(described) == len(buffers) == len(plan.arrays):
        raise ProtocolError("bad_array", f"{len(plan.arrays)} arrays expected")
    return {
        name: _unpack_array(name, dtype, description, buffer)
        for (name, dtype), description, buffer in zip(plan.arrays, described, buffers, strict=True)
    }


def _unpack_array(name: str, dtype: str, description: Any, buffer: Frame) -> NDArray[Any]:
    """A read-only view of one buffer.

    The dtype is never made from the received string: it must be equal to the declared one. Sizes are
    multiplied as Python ints, which do not overflow.
    """
    shape = description.get("shape") if type(description) is dict else None
    if type(shape) is not list or description.get("dtype") != dtype:
        raise ProtocolError("bad_array", f"{name}: dtype {dtype} and a shape expected")
    if not 1 <= len(shape) <= MAX_ARRAY_DIMENSIONS or any(type(n) is not int or n < 1 for n in shape):
        raise ProtocolError("bad_array", f"{name}: 1 to {MAX_ARRAY_DIMENSIONS} dimensions >= 1 expected")
    import numpy as np  # noqa: PLC0415 - see pack_arrays

    view = memoryview(buffer).toreadonly()
    if math.prod(shape) * np.dtype(dtype).itemsize != view.nbytes:
        raise ProtocolError("bad_array", f"{name}: shape and {view.nbytes} bytes do not agree")
    array = np.frombuffer(view, dtype=dtype).reshape(shape)
    if not array.flags.aligned:  # libzmq hands out small frames at any offset of its receive buffer
        array = array.copy()
        array.flags.writeable = False
    return array
