"""A Python function as a tool: schema from its signature, description from its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from types import SimpleNamespace
from typing import Annotated, Any, NotRequired, get_args, get_origin, get_type_hints

import docstring_parser
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidArguments, InvalidTool

Function = Callable[..., Any]

_VARIADIC_PREFIXES: Mapping[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class FunctionSignature:
    """The parameters of a function, as a JSON Schema and for converting JSON arguments."""

    def __init__(self, function: Function, name: str = "") -> None:
        self.name = name or _read_name(function)
        self._function = function
        self._source = _find_source(function)
        self._parameters = self._read_parameters()
        self._adapter = self._build_adapter()

    @property
    def tool(self) -> Tool:
        """The tool that describes the function to a model."""
        schema = self._adapter.json_schema(schema_generator=_UntitledJsonSchema)
        schema.pop("title", None)
        return Tool(self.name, _read_description(self._source), schema)

    def bind(self, arguments: Mapping[str, Any]) -> Function:
        """Return the function with its arguments, converted to the annotated types."""
        try:
            values: dict[str, Any] = self._adapter.validate_python(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(
                f"the arguments do not fit {self.name}: {_format_errors(error)}; correct them and call again"
            ) from None
        positional = [
            values.pop(name, parameter.default)
            for name, parameter in self._parameters.items()
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        ]
        return partial(self._function, *positional, **values)

    def _read_parameters(self) -> dict[str, inspect.Parameter]:
        try:
            signature = inspect.signature(self._function)
        except ValueError:
            raise InvalidTool(
                f"function {self.name!r} has no readable signature; register it with a definition of your own"
            ) from None
        # Arguments that a partial has set stay hidden from the model; they may be secrets.
        fixed = self._function.keywords if isinstance(self._function, partial) else {}
        parameters = {name: parameter for name, parameter in signature.parameters.items() if name not in fixed}
        for name, parameter in parameters.items():
            if stars := _VARIADIC_PREFIXES.get(parameter.kind):
                raise InvalidTool(
                    f"function {self.name!r}: {stars}{name} does not name its arguments; "
                    "name each, or register the function with a definition of your own"
                )
        if next(iter(parameters), "") in ("self", "cls"):
            raise InvalidTool(f"function {self.name!r} is an unbound method; pass the method of an instance")
        return parameters

    def _build_adapter(self) -> TypeAdapter[Any]:
        hints, texts = self._read_hints(), _parameter_descriptions(self._source)
        fields = {
            name: _build_field(hints.get(name, Any), parameter, texts.get(name, ""))
            for name, parameter in self._parameters.items()
        }
        for name, annotation in fields.items():
            self._check_parameter(name, annotation)
        return _typed_dict_adapter(fields)

    def _read_hints(self) -> dict[str, Any]:
        source = inspect.unwrap(self._source)
        annotations = getattr(source, "__annotations__", {})
        # Only the annotations of parameters: return types are often imported only for type checkers.
        parameters_only = SimpleNamespace(
            __annotations__={name: annotations[name] for name in self._parameters if name in annotations}
        )
        try:
            return get_type_hints(parameters_only, getattr(source, "__globals__", {}), include_extras=True)
        except (NameError, TypeError, SyntaxError, AttributeError) as error:
            raise InvalidTool(
                f"function {self.name!r}: an annotation cannot be read: {error}; "
                "the annotated type must be importable from the function's module"
            ) from None

    def _check_parameter(self, name: str, annotation: Any) -> None:
        try:
            _typed_dict_adapter({name: annotation}).json_schema()
        except (PydanticUserError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidTool(
                f"function {self.name!r}: no JSON Schema can be made of the type of parameter "
                f"{name!r}: {reason}; use plain types, dataclasses or pydantic models"
            ) from None


class _UntitledJsonSchema(GenerateJsonSchema):
    """A JSON Schema generator that leaves out titles, which only repeat the parameter names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _read_name(function: Function) -> str:
    if not callable(function) or isinstance(function, type):
        raise InvalidTool(f"{function!r} is not a function; pass one, or a tool definition")
    code = getattr(function, "__code__", None)
    name = getattr(_find_source(function), "__name__", "")
    if name == "<lambda>" and code:
        place = f"{PurePath(code.co_filename).name}, line {code.co_firstlineno}"
        raise InvalidTool(f"the lambda in {place} has no name; use def, or give a name")
    if name in ("", "<lambda>", "__call__"):
        raise InvalidTool(f"{function!r} has no name; give one")
    return str(name)


def _find_source(function: Function) -> Function:
    """Return the function that has the name, annotations and docstring of a callable."""
    if isinstance(function, partial):
        return _find_source(function.func)
    if inspect.isroutine(function):
        return function
    call: Function = type(function).__call__
    return call


def _build_field(hint: Any, parameter: inspect.Parameter, text: str) -> Any:
    """Return the annotation of a parameter; its own description precedes the docstring's."""
    base, *metadata = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    text = next((item for item in metadata if isinstance(item, str)), text)
    extra: dict[str, Any] = {}
    if parameter.default is not inspect.Parameter.empty:
        # A default that JSON cannot express is left out of the schema; the function still uses it.
        with suppress(ValueError):
            extra["default"] = to_jsonable_python(parameter.default)
    field_info = Field(description=text or None, json_schema_extra=extra)
    annotation = Annotated[base, field_info, *metadata]  # type: ignore[valid-type]
    return annotation if parameter.default is inspect.Parameter.empty else NotRequired[annotation]


def _typed_dict_adapter(fields: dict[str, Any]) -> TypeAdapter[Any]:
    # A TypedDict, because its keys may have any name; fields of a model must not be `json` or `copy`.
    arguments = TypedDict("arguments", fields)  # type: ignore[misc]
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]
    return TypeAdapter(arguments)


def _parse_docstring(function: Function) -> docstring_parser.Docstring | None:
    try:
        return docstring_parser.parse(inspect.getdoc(function) or "")
    except docstring_parser.ParseError:
        return None


def _read_description(function: Function) -> str:
    """Return the docstring of a function without its sections about arguments and results."""
    docstring = _parse_docstring(function)
    if docstring is None:
        return inspect.getdoc(function) or ""
    return "\n\n".join(filter(None, (docstring.short_description, docstring.long_description)))


def _parameter_descriptions(function: Function) -> dict[str, str]:
    docstring = _parse_docstring(function)
    return {parameter.arg_name: parameter.description or "" for parameter in docstring.params} if docstring else {}


def _format_errors(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
        for detail in error.errors(include_url=False, include_input=False)
    )
