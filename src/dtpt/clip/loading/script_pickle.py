"""An interpreter for the small pickle dialect of TorchScript archives, which can only build data.

Python's unpickler can call anything; this one walks the opcodes itself (`pickletools` only splits
them) and knows a short list of names, none of which is ever called: a class becomes a label, an
object a bag of attributes, a tensor a description of where its bytes lie. All else is refused.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dtpt.errors import CheckpointError

MAX_OPCODES = 500_000  # OpenAI's largest model needs about a tenth

STORAGE_DTYPES = {
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "DoubleStorage": "float64",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
ALLOWED_GLOBALS = {
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "collections OrderedDict",
    "torch.jit._pickle build_intlist",
    "torch.jit._pickle build_tensorlist",
    "torch.jit._pickle build_doublelist",
    "torch.jit._pickle build_boollist",
    "torch.jit._pickle restore_type_tag",
    *(f"torch {name}" for name in STORAGE_DTYPES),
}


@dataclass(frozen=True)
class Label:
    """A global name, `module name`; stands for a class or function and does nothing."""

    name: str


@dataclass(eq=False)
class ScriptObject:
    """A scripted module: its class's name and its attributes."""

    kind: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StorageRef:
    """Where a tensor's bytes lie: member `data/<key>` with `numel` elements of `dtype`."""

    dtype: str
    key: str
    numel: int


@dataclass(frozen=True)
class TensorRef:
    """A tensor that has not been built: offset and strides count elements of the storage."""

    storage: StorageRef
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Refusal(Exception):
    """Something that TorchScript has no use for and that is therefore not done."""


def interpret(data: bytes, *, origin: str) -> object:
    """Return the object that a TorchScript `data.pkl` describes.

    Raises:
        CheckpointError: an opcode or a global that TorchScript has no use for, or a broken stream.
    """
    try:
        return _run(data)
    except Refusal as error:
        raise CheckpointError(f"{origin}: data.pkl {error}") from error
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{origin}: data.pkl is malformed: {error}") from error


def _run(data: bytes) -> object:
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if count >= MAX_OPCODES:
            raise Refusal(f"has more than {MAX_OPCODES} steps")
        if opcode.name == "STOP":
            return machine.pop()
        machine.step(opcode.name, argument)
    raise ValueError("it ends without a result")


class _Mark:
    """The stack's bookmark."""


class _Machine:
    """A stack, a memo and one method per family of opcodes."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _LITERALS:
            self.stack.append(argument)
        elif name in _ACTIONS:
            _ACTIONS[name](self, argument)
        else:
            raise Refusal(f"uses the opcode {name}: refused")

    def pop(self) -> Any:
        value = self.stack.pop()
        if isinstance(value, _Mark):
            raise ValueError("a mark where a value should be")
        return value

    def pop_to_mark(self) -> list[Any]:
        values: list[Any] = []
        while not isinstance(value := self.stack.pop(), _Mark):
            values.append(value)
        return values[::-1]

    def put(self, argument: Any) -> None:
        self.memo[argument] = self.stack[-1]

    def get(self, argument: Any) -> None:
        self.stack.append(self.memo[argument])

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(values[::-1]))

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise ValueError("items for something that is no dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | int):
                raise ValueError(f"a dict key of type {type(key).__name__}")
            target[key] = value

    def append(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("items for something that is no list")
        self.stack[-1].extend(values)

    def global_(self, argument: Any) -> None:
        if not argument.startswith("__torch__") and argument not in ALLOWED_GLOBALS:
            raise Refusal(f"asks for {argument.replace(' ', '.')}: refused, not run")
        self.stack.append(Label(argument))

    def new_object(self, _: Any) -> None:
        arguments, kind = self.pop(), self.pop()
        if not isinstance(kind, Label) or not kind.name.startswith("__torch__") or arguments != ():
            raise ValueError("an object of something that is no scripted class")
        self.stack.append(ScriptObject(kind.name.replace(" ", ".")))

    def build(self, _: Any) -> None:
        state, target = self.pop(), self.stack[-1]
        if not isinstance(target, ScriptObject) or type(state) is not dict:
            raise ValueError("state for something that is no scripted object")
        target.attributes.update({str(key): value for key, value in state.items()})

    def reduce(self, _: Any) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Label) or not isinstance(arguments, tuple):
            raise ValueError("a call of something that is no function")
        self.stack.append(_reduced(function.name, arguments))

    def storage(self, _: Any) -> None:
        self.stack.append(_storage_ref(self.pop()))


def _reduced(function: str, arguments: tuple[Any, ...]) -> Any:
    """Describe what the known functions would return, instead of calling them."""
    short = function.partition(" ")[2]
    if short == "_rebuild_tensor_v2":
        return _tensor_ref(arguments)
    if short == "OrderedDict" and not arguments:
        return {}
    if short == "_rebuild_parameter" and isinstance(arguments[0], TensorRef):
        return arguments[0]
    if function.startswith("torch.jit._pickle ") and isinstance(arguments[0], list | dict):
        return arguments[0]
    raise Refusal(f"calls {function.replace(' ', '.')} oddly: refused, not run")


def _tensor_ref(arguments: tuple[Any, ...]) -> TensorRef:
    storage, offset, shape, stride = arguments[:4]
    numbers = (offset, *shape, *stride)
    if not isinstance(storage, StorageRef) or len(shape) != len(stride):
        raise ValueError("a tensor without storage or with mismatched strides")
    if any(type(number) is not int or not 0 <= number < 1 << 48 for number in numbers):
        raise ValueError("a tensor with an impossible shape")
    return TensorRef(storage, offset, tuple(shape), tuple(stride))


def _storage_ref(identity: Any) -> StorageRef:
    if not isinstance(identity, tuple) or len(identity) != 5 or identity[0] != "storage":
        raise Refusal("has a persistent id that is no storage")
    _, kind, key, _, numel = identity
    name = kind.name.partition(" ")[2] if isinstance(kind, Label) else ""
    if name not in STORAGE_DTYPES or not isinstance(key, str) or not key.isascii():
        raise Refusal(f"has a storage of unknown kind {name!r}")
    if not key.isdigit() or type(numel) is not int or not 0 <= numel < 1 << 48:
        raise Refusal(f"has an impossible storage {key!r}")
    return StorageRef(STORAGE_DTYPES[name], key, numel)


_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
}  # fmt: skip
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda *_: None,
    "FRAME": lambda *_: None,
    "MARK": lambda machine, _: machine.stack.append(_Mark()),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_to_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "GLOBAL": _Machine.global_,
    "NEWOBJ": _Machine.new_object,
    "BUILD": _Machine.build,
    "REDUCE": _Machine.reduce,
    "BINPERSID": _Machine.storage,
}
