"""Writers of malicious and broken checkpoints, by name. Each returns the model name to load.

`canary` is a file that the payloads would create if any of them were ever run.
"""

import json
import os
import pickle
import socket
import struct
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save, save_file
from tiny_checkpoints import OPEN_CLIP, tiny_config, tiny_weights, write_json

from dtpt.clip.loading.build import model_weights
from dtpt.clip.model import Clip
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer

CHECKPOINTS = {}


def hostile(function):
    CHECKPOINTS[function.__name__] = function
    return function


class Payload:
    """Unpickles as a call of os.system."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        import os

        return os.system, (f"touch {self.canary}",)


# ---- a small assembler for TorchScript's pickles


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value):
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a\x09" + data


def label(module, name):
    return f"c{module}\n{name}\n".encode()


def numbers(values):
    return b"(" + b"".join(number(value) for value in values) + b"t"


def storage(key="0", numel=4, kind=("torch", "FloatStorage")):
    return b"(" + text("storage") + label(*kind) + text(key) + text("cpu") + number(numel) + b"tQ"


def tensor(stored=None, shape=(2, 2), stride=(2, 1), offset=0):
    arguments = (stored or storage()) + number(offset) + numbers(shape) + numbers(stride)
    hooks = b"\x89" + label("collections", "OrderedDict") + b")R"
    return label("torch._utils", "_rebuild_tensor_v2") + b"(" + arguments + hooks + b"tR"


def module(**attributes):
    items = b"".join(text(name) + value for name, value in attributes.items())
    return label("__torch__.m", "M") + b")\x81}(" + items + b"ub"


def script(folder, pickled, *, data=b"\0" * 16, compress=None, extra=()):
    path = folder / "model.pt"
    members = {"code/__torch__/m.py": b"", "constants.pkl": b"\x80\x02).", "version": b"3\n"}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + pickled + b".")
        archive.writestr("m/data/0", data, compress_type=compress)
        for name, content in members.items():
            archive.writestr(f"m/{name}", content)
        for name, content in extra:
            archive.writestr(name, content)
    return f"local-file:{path}"


def weights_file(folder, weights, **metadata):
    path = folder / "model.safetensors"
    save_file(weights, path, metadata={"activation": "gelu", **metadata})
    return f"local-file:{path}"


# ---- pickles


@hostile
def bare_pickle_that_calls_a_shell(folder, canary):
    path = folder / "model.bin"
    path.write_bytes(pickle.dumps({"visual.proj": Payload(canary)}))
    return f"local-file:{path}"


@hostile
def state_dict_that_calls_a_shell(folder, canary):
    path = folder / "model.pt"
    torch.save({"visual.proj": Payload(canary)}, path)
    return f"local-file:{path}"


@hostile
def folder_whose_pickle_calls_a_shell(folder, canary):
    write_json(folder / "config.json", {"model_type": "clip"})
    write_json(folder / "preprocessor_config.json", {})
    torch.save({"visual.proj": Payload(canary)}, folder / "pytorch_model.bin")
    return f"local-dir:{folder}"


@hostile
def state_dict_with_a_nested_pickle(folder, canary):
    path = folder / "model.pt"
    inner = pickle.dumps(Payload(canary))
    outer = b"\x80\x02" + label("pickle", "loads") + b"(B" + struct.pack("<I", len(inner)) + inner
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", outer + b"tR.")
        archive.writestr("m/version", "3\n")
    return f"local-file:{path}"


@hostile
def state_dict_of_something_else(folder, canary):
    path = folder / "model.pt"
    torch.save({"state_dict": {"visual.conv1.weight": "not a tensor"}}, path)
    return f"local-file:{path}"


@hostile
def state_dict_with_a_compressed_bomb(folder, canary):
    path = folder / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", b"\0" * (64 << 20))
    return f"local-file:{path}"


@hostile
def state_dict_expanded_from_one_number(folder, canary):
    path = folder / "model.pt"
    weights = tiny_weights()
    weights["visual.proj"] = torch.zeros(1).expand(1 << 40)
    torch.save(weights, path)
    write_own_config(path.with_suffix(".json"))
    return f"local-file:{path}"


def expanded_weights(config):
    """All weights of a config, every one expanded from the same number."""
    with torch.device("meta"):
        shapes = Clip(config, tokenizer=None, preprocessing=Preprocess.openai(32))
    number = torch.zeros(())
    return {name: number.expand(t.shape) for name, t in model_weights(shapes).items()}


def expanded_file(folder, config, **options):
    path = folder / "model.pt"
    torch.save(expanded_weights(config), path, **options)
    write_own_config(path.with_suffix(".json"), config)
    return f"local-file:{path}"


def wide_config(width, layers):
    sizes = {"width": width, "layers": layers, "mlp_width": width}
    config = tiny_config()
    return config.model_copy(
        update={
            "embed_dim": width,
            "vision": config.vision.model_copy(update=sizes),
            "text": config.text.model_copy(update=sizes),
        }
    )


@hostile
def state_dict_of_gigabytes_in_some_kilobytes(folder, canary):
    return expanded_file(folder, wide_config(2048, 8))


@hostile
def old_state_dict_of_gigabytes_in_some_kilobytes(folder, canary):
    return expanded_file(folder, wide_config(2048, 8), _use_new_zipfile_serialization=False)


@hostile
def state_dict_of_terabytes(folder, canary):
    return expanded_file(folder, wide_config(65536, 256))


@hostile
def config_of_terabytes(folder, canary):
    write_own_config(folder / "dtpt_config.json", wide_config(65536, 256))
    save_file(tiny_weights(), folder / "model.safetensors")
    return f"local-dir:{folder}"


@hostile
def state_dict_whose_tensors_share_one_storage(folder, canary):
    path, whole = folder / "model.pt", torch.zeros(1 << 20)
    torch.save({f"visual.conv{i}.weight": whole[i:] for i in range(1000)}, path)
    return f"local-file:{path}"


@hostile
def state_dict_that_copies_a_text(folder, canary):
    copies = (label("_codecs", "encode") + b"(h\x01" + text("utf-8") + b"tR" for _ in range(500))
    pickled = b"](" + text("a" * (4 << 20)) + b"q\x01" + b"".join(copies) + b"e"
    path = folder / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + pickled + b".")
    return f"local-file:{path}"


@hostile
def old_state_dict_without_its_storages(folder, canary):
    path = folder / "model.pt"
    torch.save(tiny_weights(), path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:50_000])
    return f"local-file:{path}"


def write_own_config(path, config=None):
    document = {
        "format": 1,
        "model": (config or tiny_config()).model_dump(mode="json"),
        "preprocess": {"size": 32},
    }
    write_json(path, document)


# ---- TorchScript archives


@hostile
def script_that_calls_a_shell(folder, canary):
    call = label("os", "system") + b"(" + text(f"touch {canary}") + b"tR"
    return script(folder, module(a=call))


@hostile
def script_that_calls_eval(folder, canary):
    call = label("builtins", "eval") + b"(" + text(f"open({str(canary)!r}, 'w')") + b"tR"
    return script(folder, call)


@hostile
def script_that_names_a_global_by_the_stack(folder, canary):
    return script(folder, text("os") + text("system") + b"\x93(" + text(f"touch {canary}") + b"tR")


@hostile
def script_that_builds_an_instance(folder, canary):
    return script(folder, b"(" + text(f"touch {canary}") + b"ios\nsystem\n")


@hostile
def script_with_a_nested_pickle(folder, canary):
    inner = pickle.dumps(Payload(canary)).decode("latin-1")
    return script(folder, label("_pickle", "loads") + b"(" + text(inner) + b"tR")


@hostile
def script_that_sets_state_of_a_class(folder, canary):
    return script(folder, label("torch", "FloatStorage") + b"}(" + text("a") + number(1) + b"ub")


@hostile
def script_whose_storage_is_a_path(folder, canary):
    return script(folder, module(a=tensor(storage(key="../../../../etc/passwd"))))


@hostile
def script_whose_storage_is_a_shell(folder, canary):
    return script(folder, module(a=tensor(storage(kind=("os", "system")))))


@hostile
def script_whose_persistent_id_is_text(folder, canary):
    return script(folder, module(a=text("storage") + b"Q"))


@hostile
def script_whose_storage_claims_a_terabyte(folder, canary):
    return script(folder, module(a=tensor(storage(numel=1 << 38), shape=(1 << 38,), stride=(1,))))


@hostile
def script_whose_tensor_reaches_beyond_its_storage(folder, canary):
    return script(folder, module(a=tensor(shape=(4, 4), stride=(4, 1))))


@hostile
def script_whose_tensor_starts_before_its_storage(folder, canary):
    return script(folder, module(a=tensor(offset=-4)))


@hostile
def script_expanded_from_four_numbers(folder, canary):
    return script(folder, module(a=tensor(shape=(1 << 20, 1 << 20), stride=(0, 0))))


@hostile
def script_with_tensors_that_share_too_much(folder, canary):
    shared = {f"a{i}": tensor(storage(numel=1 << 18), shape=(1,), stride=(1,)) for i in range(2000)}
    return script(folder, module(**shared), data=b"\0" * (1 << 20))


@hostile
def script_module_inside_itself(folder, canary):
    loop = label("__torch__.m", "M") + b")\x81q\x01}(" + text("me") + b"h\x01ub"
    return script(folder, loop)


@hostile
def script_of_endless_steps(folder, canary):
    return script(folder, b"N" * (6 << 20))


@hostile
def script_that_copies_a_class_name(folder, canary):
    named = label("__torch__." + "m" * (4 << 20), "M") + b"q\x01"
    return script(folder, b"](" + named + b"h\x01)\x81" * 1000 + b"e")


@hostile
def script_that_copies_attributes(folder, canary):
    state = b"}(" + b"".join(text(f"a{i}") + b"N" for i in range(50_000)) + b"uq\x01"
    return script(folder, state + (label("__torch__.m", "M") + b")\x81h\x01b") * 50_000)


@hostile
def script_that_repeats_a_long_name(folder, canary):
    inner = module(**{f"a{i}": b"h\x01" for i in range(1000)})
    long = text("n" * (1 << 20)) + b"q\x02" + tensor() + b"q\x010"
    return script(folder, long + b"0" + module(b=inner, **{"n" * (1 << 20): b"h\x01"}))


@hostile
def script_that_ends_early(folder, canary):
    path = Path(script(folder, module(a=tensor())).removeprefix("local-file:"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02(((((")
        archive.writestr("m/constants.pkl", b"")
    return f"local-file:{path}"


@hostile
def script_that_is_no_clip(folder, canary):
    return script(folder, module(a=tensor()))


# ---- zip archives


@hostile
def zip_bomb(folder, canary):
    zeros = b"\0" * (64 << 20)
    big = tensor(storage(numel=16 << 20), shape=(16 << 20,), stride=(1,))
    return script(folder, module(a=big), data=zeros, compress=zipfile.ZIP_DEFLATED)


@hostile
def zip_with_a_path_in_a_member_name(folder, canary):
    return script(folder, module(a=tensor()), extra=[("m/../../evil", b"x")])


@hostile
def zip_with_an_absolute_member_name(folder, canary):
    return script(folder, module(a=tensor()), extra=[("/tmp/evil", b"x")])


@hostile
def zip_truncated_in_the_middle(folder, canary):
    path = folder / "model.pt"
    torch.save(tiny_weights(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return f"local-file:{path}"


@hostile
def zip_whose_members_overlap(folder, canary):
    name = script(folder, module(a=tensor()), extra=[("m/data/1", b"y" * 64)])
    return patch_directory(name, b"m/data/1", lambda fields: {**fields, "offset": 0})


@hostile
def zip_whose_directory_lies_about_sizes(folder, canary):
    name = script(folder, module(a=tensor()))
    return patch_directory(name, b"m/data/0", lambda fields: {**fields, "size": 1 << 31})


@hostile
def zip_with_a_damaged_byte(folder, canary):
    path = folder / "model.pt"
    weights = {name: value.half() for name, value in tiny_weights().items()}
    torch.save(weights, path)
    data = bytearray(path.read_bytes())
    data[data.index(b"data.pkl") + 40] ^= 0xFF
    path.write_bytes(data)
    return f"local-file:{path}"


def patch_directory(name, member, change):
    """Rewrite size and offset of one member in the central directory."""
    path = Path(name.removeprefix("local-file:"))
    data = bytearray(path.read_bytes())
    at = data.rindex(member) - 46
    assert data[at : at + 4] == b"PK\x01\x02"
    old = {"size": struct.unpack_from("<I", data, at + 20)[0]}
    old["offset"] = struct.unpack_from("<I", data, at + 42)[0]
    new = change(old)
    struct.pack_into("<II", data, at + 20, new["size"], new["size"])
    struct.pack_into("<I", data, at + 42, new["offset"])
    path.write_bytes(data)
    return name


# ---- safetensors


def raw_safetensors(folder, header, data=b""):
    path = folder / "model.safetensors"
    text_ = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text_)) + text_ + data)
    return f"local-file:{path}"


@hostile
def safetensors_with_an_endless_header(folder, canary):
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    return f"local-file:{path}"


@hostile
def safetensors_with_a_huge_header(folder, canary):
    return raw_safetensors(folder, b'{"a":' + b" " * (40 << 20) + b"1}")


@hostile
def safetensors_with_a_deeply_nested_header(folder, canary):
    return raw_safetensors(folder, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@hostile
def safetensors_whose_tensors_overlap(folder, canary):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return raw_safetensors(folder, {"a": entry, "b": entry}, b"\0" * 8)


@hostile
def safetensors_whose_shape_exceeds_its_bytes(folder, canary):
    entry = {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 8]}
    return raw_safetensors(folder, {"visual.conv1.weight": entry}, b"\0" * 8)


@hostile
def safetensors_truncated(folder, canary):
    path = folder / "model.safetensors"
    path.write_bytes(save(tiny_weights())[:-1000])
    return f"local-file:{path}"


@hostile
def safetensors_with_nan(folder, canary):
    weights = tiny_weights()
    weights["visual.proj"][3, 5] = float("nan")
    return weights_file(folder, weights)


@hostile
def safetensors_with_infinity_in_half(folder, canary):
    weights = {name: value.half() for name, value in tiny_weights().items()}
    weights["text_projection"][0, 0] = float("inf")
    return weights_file(folder, weights)


@hostile
def safetensors_of_integers(folder, canary):
    weights = tiny_weights()
    weights["visual.proj"] = weights["visual.proj"].to(torch.int8)
    return weights_file(folder, weights)


@hostile
def safetensors_of_doubles(folder, canary):
    return weights_file(folder, {name: value.double() for name, value in tiny_weights().items()})


@hostile
def safetensors_without_some_tensors(folder, canary):
    weights = tiny_weights()
    del weights["ln_final.weight"], weights["visual.ln_post.bias"]
    return weights_file(folder, weights)


@hostile
def safetensors_with_a_foreign_tensor(folder, canary):
    return weights_file(folder, {**tiny_weights(), "visual.trojan": torch.zeros(3)})


@hostile
def safetensors_without_an_activation(folder, canary):
    path = folder / "model.safetensors"
    save_file(tiny_weights(), path)
    return f"local-file:{path}"


# ---- files that are none: opening them would block for ever, or never end


def whole_folder(folder):
    """A folder that loads, before one of its files is replaced."""
    write_json(folder / "open_clip_config.json", OPEN_CLIP)
    save_file(tiny_weights(), folder / "open_clip_model.safetensors")
    return f"local-dir:{folder}"


def with_pipe(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    return f"local-dir:{folder}"


@hostile
def pipe_as_file(folder, canary):
    os.mkfifo(folder / "model.pt")
    return f"local-file:{folder / 'model.pt'}"


@hostile
def socket_as_file(folder, canary):
    place = os.open(folder, os.O_RDONLY)  # the address of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{place}/model.pt")
    os.close(place)
    return f"local-file:{folder / 'model.pt'}"


@hostile
def device_as_file(folder, canary):
    return "local-file:/dev/zero"


@hostile
def device_behind_a_link(folder, canary):
    (folder / "model.pt").symlink_to("/dev/zero")
    return f"local-file:{folder / 'model.pt'}"


@hostile
def pipe_as_config(folder, canary):
    whole_folder(folder)
    return with_pipe(folder, "open_clip_config.json")


@hostile
def pipe_as_weights(folder, canary):
    whole_folder(folder)
    return with_pipe(folder, "open_clip_model.safetensors")


@hostile
def pipe_as_pickle(folder, canary):
    whole_folder(folder)
    (folder / "open_clip_model.safetensors").unlink()
    return with_pipe(folder, "open_clip_pytorch_model.bin")


@hostile
def pipe_as_tokenizer(folder, canary):
    whole_folder(folder)
    return with_pipe(folder, "tokenizer.json")


@hostile
def pipe_as_vocabulary(folder, canary):
    whole_folder(folder)
    (folder / "merges.txt").write_text("")
    return with_pipe(folder, "vocab.json")


@hostile
def broken_link_as_tokenizer(folder, canary):
    (folder / "tokenizer.json").symlink_to(folder / "gone")
    return whole_folder(folder)


def sharded(folder):
    write_json(folder / "config.json", {"model_type": "clip"})
    write_json(folder / "preprocessor_config.json", {})
    places = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    write_json(folder / "model.safetensors.index.json", places)


@hostile
def pipe_as_index(folder, canary):
    sharded(folder)
    return with_pipe(folder, "model.safetensors.index.json")


@hostile
def pipe_as_shard(folder, canary):
    sharded(folder)
    return with_pipe(folder, "model-00001-of-00001.safetensors")


@hostile
def pipe_as_image_processor(folder, canary):
    sharded(folder)
    return with_pipe(folder, "preprocessor_config.json")


@hostile
def pipe_as_config_beside_a_file(folder, canary):
    save_file(tiny_weights(), folder / "mine.safetensors")
    os.mkfifo(folder / "mine.json")
    return f"local-file:{folder / 'mine.safetensors'}"


# ---- anything else


@hostile
def index_that_points_outside(folder, canary):
    write_json(folder / "config.json", {"model_type": "clip"})
    write_json(folder / "preprocessor_config.json", {})
    places = {"weight_map": {"a": "../../../etc/passwd"}}
    write_json(folder / "model.safetensors.index.json", places)
    return f"local-dir:{folder}"


@hostile
def config_of_a_billion_layers(folder, canary):
    tower = {"num_hidden_layers": 10**9}
    config = {"model_type": "clip", "text_config": tower, "vision_config": tower}
    write_json(folder / "config.json", config)
    write_json(folder / "preprocessor_config.json", {})
    save_file(tiny_weights(), folder / "model.safetensors")
    return f"local-dir:{folder}"


@hostile
def config_nested_without_end(folder, canary):
    (folder / "config.json").write_text("[" * 200_000)
    (folder / "model.safetensors").write_bytes(b"")
    return f"local-dir:{folder}"


def with_tokenizer(folder, data):
    (folder / "tokenizer.json").write_bytes(data)
    return whole_folder(folder)


def tokenizer_with(**changes):
    tree = json.loads(Tokenizer.from_merges(None, b"a b\n", context_length=77).to_json())
    tree["model"]["vocab"] |= changes.pop("vocab", {})
    return json.dumps(tree | changes).encode()


@hostile
def tokenizer_with_an_infinite_added_id(folder, canary):
    added = [{"content": "x", "id": float("inf")}]
    return with_tokenizer(folder, tokenizer_with(added_tokens=added))


@hostile
def tokenizer_with_an_infinite_id(folder, canary):
    return with_tokenizer(folder, tokenizer_with(vocab={"x": float("inf")}))


@hostile
def tokenizer_with_an_id_beyond_the_embedding(folder, canary):
    return with_tokenizer(folder, tokenizer_with(vocab={"x": 9_999_999}))


@hostile
def tokenizer_of_empty_lists(folder, canary):
    return with_tokenizer(folder, b'{"model": [' + b"[]," * 5_000_000 + b"[]]}")


def pieces_with(normalizer=None, vocab=(("</s>", 0.0), ("a", -1.0))):
    model = {"type": "Unigram", "unk_id": 0, "vocab": [list(piece) for piece in vocab]}
    ends = {"type": "RobertaProcessing", "cls": ["</s>", 0], "sep": ["</s>", 0]}
    tree = {"model": model, "normalizer": normalizer, "post_processor": ends}
    return json.dumps(tree | {"padding": {"pad_id": 0}}).encode()


@hostile
def pattern_of_exponential_time(folder, canary):
    replaced = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}
    return with_tokenizer(folder, pieces_with(replaced))


@hostile
def replacement_that_fills_the_memory(folder, canary):
    replaced = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10_000_000}
    return with_tokenizer(folder, pieces_with(replaced))


@hostile
def damaged_character_map(folder, canary):
    broken = {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAD/////"}
    return with_tokenizer(folder, pieces_with(broken))


@hostile
def scores_that_are_not_numbers(folder, canary):
    return with_tokenizer(folder, pieces_with(vocab=(("</s>", 0.0), ("a", True), ("b", 1e300))))


def with_foreign_tower(folder, **settings):
    name = whole_folder(folder)
    path = folder / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["vision_cfg"] = {"image_size": 32, **settings}
    write_json(path, config)
    return name


@hostile
def tower_from_the_network(folder, canary):
    return with_foreign_tower(folder, timm_model_name="hf-hub:org/repo", timm_pool="avg")


@hostile
def foreign_tower_of_a_billion_layers(folder, canary):
    return with_foreign_tower(folder, layers=10**9, width=64, no_ln_pre=True)


@hostile
def own_config_with_a_tower_from_the_network(folder, canary):
    config = tiny_config().model_dump(mode="json")
    settings = {"timm_model_name": "hf-hub:org/repo", "timm_model_pretrained": True}
    config["vision"] = {"kind": "open_clip", "image_size": 32, "settings": settings}
    document = {"format": 1, "model": config, "preprocess": {"size": 32}}
    write_json(folder / "dtpt_config.json", document)
    save_file(tiny_weights(), folder / "model.safetensors")
    return f"local-dir:{folder}"


@hostile
def tokenizer_of_very_many_tokens(folder, canary):
    words = {f"t{i:x}": 10_000 + i for i in range(490_000)}
    return with_tokenizer(folder, tokenizer_with(vocab=words))


@hostile
def merges_without_end(folder, canary):
    (folder / "merges.txt").write_bytes(b"a b\n" * 4_000_000)
    return whole_folder(folder)


@hostile
def empty_file(folder, canary):
    (folder / "model.pt").write_bytes(b"")
    return f"local-file:{folder / 'model.pt'}"


@hostile
def text_file(folder, canary):
    (folder / "model.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    return f"local-file:{folder / 'model.pt'}"


@hostile
def random_bytes(folder, canary):
    (folder / "model.pt").write_bytes(bytes(range(256)) * 64)
    return f"local-file:{folder / 'model.pt'}"


@hostile
def missing_file(folder, canary):
    return f"local-file:{folder / 'nowhere.pt'}"


@hostile
def empty_folder(folder, canary):
    return f"local-dir:{folder}"
