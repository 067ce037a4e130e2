"""Every public name of the client is typed and documented, and so is what the official client has and ours has not."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from enum import Enum
from types import FunctionType, ModuleType

import pulsar
import pulsar.schema
import pytest

import geminga.client as gc
from geminga.client import blocking, schema
from support.house.source_tree import ROOT

MODULES = (gc, blocking, schema)
DOCS = ROOT / "docs"


def exported() -> Iterator[tuple[str, object]]:
    for module in MODULES:
        for name in module.__all__:
            yield f"{module.__name__}.{name}", getattr(module, name)


def functions_of(name: str, thing: object) -> Iterator[tuple[str, FunctionType]]:
    """The function itself, or the public methods, properties and initializer that a class defines."""
    if isinstance(thing, FunctionType):
        yield name, thing
    if not inspect.isclass(thing) or issubclass(thing, Enum) or hasattr(thing, "__required_keys__"):
        return
    for key, member in vars(thing).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        is_ours = isinstance(function, FunctionType) and function.__module__.startswith("geminga.")
        if is_ours and (key == "__init__" or not key.startswith("_")):
            yield f"{name}.{key}", function


def untyped(function: FunctionType) -> list[str]:
    signature = inspect.signature(function)
    missing = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.annotation is inspect.Parameter.empty and parameter.name not in ("self", "cls")
    ]
    return missing + (["return"] if signature.return_annotation is inspect.Signature.empty else [])


def test_every_exported_class_and_function_is_documented() -> None:
    bare = [
        name
        for name, thing in exported()
        if (inspect.isclass(thing) or isinstance(thing, FunctionType))
        and not (vars(thing).get("__doc__") or thing.__doc__)
    ]
    assert not bare
    inherited = [
        name
        for name, thing in exported()
        if inspect.isclass(thing) and issubclass(thing, BaseException) and not vars(thing).get("__doc__")
    ]
    assert not inherited, "errors that say nothing of their own"


def test_every_public_method_is_documented_and_typed() -> None:
    found = []
    count = 0
    for name, thing in exported():
        for path, function in functions_of(name, thing):
            count += 1
            if not function.__doc__ and not path.endswith("__init__"):
                found.append(f"{path} has no docstring")
            found += [f"{path}: {what} has no type" for what in untyped(function)]
    assert count > 300
    assert not found, "\n".join(found)


def test_untyped_parameters_are_caught() -> None:
    def half(a: int, b):
        return b

    assert untyped(half) == ["b", "return"]


@pytest.mark.parametrize("options", [gc.ClientOptions, gc.ProducerOptions, gc.ConsumerOptions])
def test_every_option_is_in_the_docs_and_says_its_unit(options: type) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("client*.md"))
    names = [field.name for field in dataclasses.fields(options)]
    assert [name for name in names if f"`{name}`" not in text] == []
    units = ("_ms", "_millis", "_s", "_bytes")
    quantities = ("timeout", "delay", "interval", "period", "_time_", "duration", "size_in", "backoff_")
    without = [
        field.name
        for field in dataclasses.fields(options)
        if field.type in ("int", "float")
        and any(word in field.name for word in quantities)
        and not field.name.endswith(units)
    ]
    assert without == []


def names_of(module: ModuleType) -> Iterator[str]:
    for name, thing in vars(module).items():
        if (
            not name.startswith("_")
            and inspect.isclass(thing)
            and thing.__module__.partition(".")[0] in ("pulsar", "_pulsar")
        ):
            yield name


def test_what_the_official_client_has_is_here_or_on_the_moving_page() -> None:
    page = (DOCS / "moving-from-pulsar-client.md").read_text(encoding="utf-8")
    absent = [name for name in names_of(pulsar) if not hasattr(gc, name) and not hasattr(schema, name)]
    absent += [name for name in names_of(pulsar.schema) if not hasattr(schema, name)]
    for official in (pulsar.Client, pulsar.Producer, pulsar.Consumer, pulsar.Reader, pulsar.Message, pulsar.MessageId):
        ours = getattr(gc, official.__name__)
        absent += [name for name in dir(official) if not name.startswith("_") and not hasattr(ours, name)]
    taken = {
        pulsar.Client.__init__: {*gc.ClientArguments.__annotations__, "self", "service_url"},
        pulsar.Client.create_producer: {*gc.ProducerArguments.__annotations__, "self", "topic", "schema"},
        pulsar.Client.subscribe: {
            *gc.ConsumerArguments.__annotations__,
            "self",
            "topic",
            "schema",
            "subscription_name",
        },
        pulsar.Producer.send: {*gc.MessageFields.__annotations__, "self", "content"},
    }
    for function, ours in taken.items():
        absent += [name for name in inspect.signature(function).parameters if name not in ours]
    assert [name for name in dict.fromkeys(absent) if f"`{name}" not in page and f".{name}" not in page] == []
