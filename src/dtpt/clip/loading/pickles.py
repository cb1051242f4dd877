"""The pickles inside of torch's files, walked without running anything.

Python's unpickler can call anything, and torch's restricted one still copies a text as often as a
file asks (4 MB became 800 MB). The interpreter here walks the opcodes itself (`pickletools` only
splits them) and accepts a short list of names, none of which is ever called: a class becomes a
label, an object a bag of attributes, a tensor a description of where its bytes are. What it makes
is never larger than what it reads.
"""

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from dtpt.errors import short_repr

MAX_OPCODES = 500_000  # OpenAI's largest model needs about a tenth
# What is cheap once must not be repeated at no cost: names are short, tensors have few dimensions,
# and whole-number keys are those of optimiser states, which cannot collide in a dict.
MAX_NAME = 200
MAX_DIMENSIONS = 8
MAX_KEY = 1 << 32

STORAGE_DTYPES = {
    "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "DoubleStorage": "float64", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip
ALLOWED_GLOBALS = {
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "torch Size",
    "torch device",
    "collections OrderedDict",
    *(f"torch.jit._pickle build_{kind}list" for kind in ("int", "tensor", "double", "bool")),
    "torch.jit._pickle restore_type_tag",
    *(f"torch {name}" for name in STORAGE_DTYPES),
    *(f"torch {name}" for name in STORAGE_DTYPES.values()),
}


class Label(str):
    """A global name, `module name`: the label of a class or function, never resolved."""


@dataclass(eq=False)
class ScriptObject:
    """A scripted module: its class's name and its attributes."""

    kind: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StorageRef:
    """Where tensors have their bytes: the storage `key` with `numel` elements of `dtype`."""

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


_MARK = object()  # on the stack


def read_pickle(stream: BinaryIO) -> tuple[Any, dict[str, StorageRef]]:
    """Return what one pickle describes and all storages by key; leave the stream behind it.

    Raises:
        ValueError: It is malformed, or holds anything but tensors, modules and plain values.
    """
    machine = _Interpreter()
    try:
        with warnings.catch_warnings():  # pickletools decodes strings that are refused later
            warnings.simplefilter("ignore", DeprecationWarning)
            return machine.run(stream), machine.storages
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"malformed ({error})") from error


class _Interpreter:
    """A stack, a memo and one method per family of opcodes."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, StorageRef] = {}

    def run(self, stream: BinaryIO) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count >= MAX_OPCODES:
                raise ValueError(f"more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                return self.pop()
            if opcode.name in _CONSTANTS:
                self.stack.append(_CONSTANTS[opcode.name])
            elif opcode.name in _LITERALS:
                self.stack.append(argument)
            elif opcode.name in _ACTIONS:
                _ACTIONS[opcode.name](self, argument)
            else:
                raise ValueError(f"the opcode {opcode.name} is not allowed")
        raise ValueError("it ends without a result")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def pop_to_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(values[::-1]))

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise ValueError("items for something that is not a dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str) and not (type(key) is int and 0 <= key < MAX_KEY):
                raise ValueError(f"a dict key of type {type(key).__name__}")
            target[key] = value

    def append(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("items for something that is not a list")
        self.stack[-1].extend(values)

    def global_(self, argument: Any) -> None:
        if len(argument) > MAX_NAME:
            raise ValueError(f"a global of {len(argument)} characters")
        if not argument.startswith("__torch__") and argument not in ALLOWED_GLOBALS:
            raise ValueError(f"the global {argument.replace(' ', '.')} is not allowed")
        self.stack.append(Label(argument))

    def new_object(self, _: Any) -> None:
        arguments, kind = self.pop(), self.pop()
        if not isinstance(kind, Label) or not kind.startswith("__torch__") or arguments != ():
            raise ValueError("an object of something that is not a scripted class")
        self.stack.append(ScriptObject(kind.replace(" ", ".")))

    def build(self, _: Any) -> None:
        state, target = self.pop(), self.stack[-1]
        if type(state) is not dict or not isinstance(target, ScriptObject | dict):
            raise ValueError("state for something that is not a scripted object")
        if isinstance(target, ScriptObject):  # else the versions that a state dict carries
            target.attributes = state

    def storage(self, _: Any) -> None:
        ref = _storage_ref(self.pop())
        self.storages[ref.key] = ref
        self.stack.append(ref)

    def reduce(self, _: Any) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Label) or not isinstance(arguments, tuple):
            raise ValueError("a call of something that is not a function")
        self.stack.append(_reduced(function, arguments))


def _reduced(function: str, arguments: tuple[Any, ...]) -> Any:
    """Describe what the allowed functions would return, instead of calling them."""
    short = function.partition(" ")[2]
    if short == "_rebuild_tensor_v2":
        return _tensor_ref(arguments)
    if short == "OrderedDict" and not arguments:
        return {}
    if short == "_rebuild_parameter" and isinstance(arguments[0], TensorRef):
        return arguments[0]
    if function.startswith("torch.jit._pickle ") and isinstance(arguments[0], list | dict):
        return arguments[0]
    if short in ("Size", "device"):
        return arguments
    raise ValueError(f"the call of {function.replace(' ', '.')} is not allowed")


def _tensor_ref(arguments: tuple[Any, ...]) -> TensorRef:
    storage, offset, shape, stride = arguments[:4]
    if not isinstance(storage, StorageRef) or not len(shape) == len(stride) <= MAX_DIMENSIONS:
        raise ValueError("a tensor without storage or with mismatched strides")
    numbers = (offset, *shape, *stride)
    if any(type(number) is not int or not 0 <= number < 1 << 48 for number in numbers):
        raise ValueError("a tensor with an impossible shape")
    return TensorRef(storage, offset, tuple(shape), tuple(stride))


def _storage_ref(identity: Any) -> StorageRef:
    # ("storage", class, key, device, elements); the older format adds what it is a view of
    if not isinstance(identity, tuple) or identity[:1] != ("storage",) or any(identity[5:]):
        raise ValueError("a persistent id that is not a storage")
    _, kind, key, _, numel = identity[:5]
    name = kind.partition(" ")[2] if isinstance(kind, Label) else ""
    if name not in STORAGE_DTYPES or not isinstance(key, str):
        raise ValueError(f"a storage of unknown kind {name!r}")
    is_number = len(key) <= MAX_NAME and key.isascii() and key.isdigit()
    if not is_number or type(numel) is not int or not 0 <= numel < 1 << 48:
        raise ValueError(f"an impossible storage {short_repr(key)}")
    return StorageRef(STORAGE_DTYPES[name], key, numel)


_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
}  # fmt: skip
_ACTIONS: dict[str, Callable[[_Interpreter, Any], None]] = {
    "PROTO": lambda *_: None,
    "FRAME": lambda *_: None,
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_to_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "BINPUT": lambda machine, key: machine.memo.update({key: machine.stack[-1]}),
    "LONG_BINPUT": lambda machine, key: machine.memo.update({key: machine.stack[-1]}),
    "BINGET": lambda machine, key: machine.stack.append(machine.memo[key]),
    "LONG_BINGET": lambda machine, key: machine.stack.append(machine.memo[key]),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "GLOBAL": _Interpreter.global_,
    "NEWOBJ": _Interpreter.new_object,
    "BUILD": _Interpreter.build,
    "REDUCE": _Interpreter.reduce,
    "BINPERSID": _Interpreter.storage,
}
