"""Between our classes and JSON: camelCase on the wire, absent optionals left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import orjson
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.preconf.orjson import OrjsonConverter, make_converter

from agentteam_protocol.errors import RemoteProtocolError
from agentteam_protocol.frames import FRAME_KINDS, Envelope, Frame
from agentteam_protocol.ids import Generation
from agentteam_protocol.journal import KINDS, JournalEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

TAG = "kind"

K = TypeVar("K")


class Hooks(dict[K, Callable[..., Any]]):
    """What the converter does for each class, or kind; made when it is first needed."""

    def __init__(self, make: Callable[[K], Callable[..., Any]]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> Callable[..., Any]:
        hook = self[key] = self._make(key)
        return hook


def camel(name: str) -> str:
    """Spell a snake_case name the way the wire does."""
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def _names(cls: type[Any]) -> dict[str, Any]:
    tagged = cls in FRAME_KINDS or cls in KINDS
    return {
        a.name: override(
            # The tag of a union has the name first; the field must not lose its value.
            rename="ofKind" if tagged and a.name == TAG else camel(a.name),
            omit_if_default=a.default is None,
        )
        for a in attrs.fields(cls)
    }


def _structure_generation(value: Any, _: Any) -> Generation:
    epoch, number = value
    return Generation(int(epoch), int(number))


def _build() -> OrjsonConverter:
    converter = make_converter()

    def unstructure_fn(cls: type[Any]) -> Any:
        return make_dict_unstructure_fn(cls, converter, **_names(cls))

    def structure_fn(cls: type[Any]) -> Any:
        return make_dict_structure_fn(cls, converter, **_names(cls))

    converter.register_unstructure_hook_factory(attrs.has, unstructure_fn)
    converter.register_structure_hook_factory(attrs.has, structure_fn)
    converter.register_unstructure_hook(Generation, lambda g: [g.epoch, g.number])
    converter.register_structure_hook(Generation, _structure_generation)
    for union, kinds in ((JournalEvent, KINDS), (Frame, FRAME_KINDS)):
        _tag(converter, union, kinds)
    return converter


def _tag(converter: OrjsonConverter, union: Any, kinds: Mapping[type, str]) -> None:
    """
    Tell the members of a union apart by their kind.

    As cattrs' own strategy does, which makes the hooks of all members at once: that
    was a tenth of a program's start, and most programs need few of them.
    """
    classes: dict[str, type] = {kind: cls for cls, kind in kinds.items()}

    def hook_of(kind: str) -> Callable[..., Any]:
        return converter.get_structure_hook(classes[kind])

    structure_hook = Hooks[str](hook_of)
    unstructure_hook = Hooks[type](converter.get_unstructure_hook)

    def structure(value: Any, _: Any) -> Any:
        kind = value[TAG]
        return structure_hook[kind](value, classes[kind])

    def unstructure(value: Any) -> dict[str, Any]:
        cls: type = value.__class__
        plain: dict[str, Any] = unstructure_hook[cls](value)
        plain[TAG] = kinds[cls]
        return plain

    converter.register_structure_hook(union, structure)
    converter.register_unstructure_hook(union, unstructure)


# One converter for the process; hot paths may build their own.
CONVERTER = _build()


def encode_event(event: JournalEvent) -> bytes:
    """Make a journal event's JSON text."""
    return orjson.dumps(CONVERTER.unstructure(event, unstructure_as=JournalEvent))


def decode_event(data: bytes | str) -> JournalEvent:
    """Read a journal event; any fault is a `RemoteProtocolError`."""
    event: JournalEvent = _decode(data, JournalEvent)
    return event


def encode_envelope(envelope: Envelope) -> bytes:
    return orjson.dumps(CONVERTER.unstructure(envelope))


def decode_envelope(data: bytes | str) -> Envelope:
    """Read a link message; any fault is a `RemoteProtocolError`."""
    envelope: Envelope = _decode(data, Envelope)
    return envelope


def to_wire(value: Any) -> Any:
    """Make plain JSON values of one of our classes."""
    return CONVERTER.unstructure(value)


def from_wire(value: Any, cls: Any) -> Any:
    """Make one of our classes of plain JSON values; raises `RemoteProtocolError`."""
    try:
        return CONVERTER.structure(value, cls)
    except Exception as exc:
        raise _fault(exc, value) from exc


def _decode(data: bytes | str, cls: Any) -> Any:
    try:
        value = orjson.loads(data)
        if not isinstance(value, dict):
            raise TypeError("not a JSON object")
        return CONVERTER.structure(value, cls)
    except Exception as exc:
        raise _fault(exc, data) from exc


def _fault(exc: Exception, value: Any) -> RemoteProtocolError:
    # cattrs raises groups, KeyErrors and ValueErrors alike: all mean "not our shape".
    return RemoteProtocolError(f"not a valid frame: {exc}", str(value))
