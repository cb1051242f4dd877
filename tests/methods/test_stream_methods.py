"""Methods that carry state, against a few lines written from their definitions."""

import math
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import dtpt
from dtpt.data.catalog import NAMED_SETS
from dtpt.errors import MethodError
from dtpt.methods import METHODS, resolve_method
from dtpt.methods.memory import BLOCK, empty_memory, remember
from dtpt.tuning.state import pack_state, state_digest, state_tensors, unpack_state

C, D, SCALE, IMAGES = 7, 12, 20.0, 100
STREAMS = [name for name, method in METHODS.items() if method.is_stateful]


def text_features():
    generator = torch.Generator().manual_seed(0)
    return F.normalize(torch.randn(C, D, generator=generator, dtype=torch.float64), dim=-1)


def view_stream(seed, *, images=IMAGES, views=20):
    """Views of images near random classes, from sure to undecided."""
    generator, text = torch.Generator().manual_seed(seed), text_features()
    for _ in range(images):
        label = int(torch.randint(C, (1,), generator=generator))
        noise = 0.2 + 1.2 * float(torch.rand(1, generator=generator))
        centre = text[label] + noise * torch.randn(D, generator=generator).double() / math.sqrt(D)
        yield F.normalize(
            centre + 0.1 * torch.randn(views, D, generator=generator, dtype=torch.float64), dim=-1
        )


def run(name, streams, *, step=None, method=None, scale=SCALE):
    method, text = method or METHODS[name], text_features()
    state, answers = method.initial(text, logit_scale=scale), []
    for views in streams:
        logits, state = (step or method.step)(state, views, text=text, logit_scale=scale)
        answers.append(logits)
    return torch.stack(answers), state


def nats(p):
    return float(-(p * p.log()).sum())


# ---- the definitions, in a few lines each


def plain_tda(streams, *, base=math.e, alpha=2.0, beta=5.0, look=None, boosted=0.0):
    text, positive, negative, answers = text_features(), {}, {}, []

    def enter(cache, label, item, places):
        kept = [*cache.get(label, []), item]
        cache[label] = sorted(kept, key=lambda each: each[1])[:places]

    for views in streams:
        f, z = look(views) if look else (views[0], SCALE * text @ views[0])
        p = z.softmax(-1)
        label, h = int(z.argmax()), nats(p)
        enter(positive, label, (f, h), 3)
        if 0.2 < h / math.log(C, base) < 0.5:
            enter(negative, label, (f, h, (p > 0.03).double()), 2)
        used = {key: list(items) for key, items in positive.items()}
        if boosted:
            all_p = (SCALE * views @ text.T).softmax(-1)
            entropies = [nats(row) for row in all_p]
            for k in sorted(range(len(views)), key=entropies.__getitem__)[
                : int(boosted * len(views))
            ]:
                enter(used, int(all_p[k].argmax()), (views[k], entropies[k]), 3)
        z = z.clone()
        for key, items in used.items():
            z[key] += alpha * sum(math.exp(-beta * (1 - float(f @ g))) for g, _ in items)
        for items in negative.values():
            for g, _, mask in items:
                z -= 0.117 * math.exp(-(1 - float(f @ g))) * mask
        answers.append(z)
    return torch.stack(answers)


def mean_view(views, fraction=0.3):
    log_p = (SCALE * views @ text_features().T).log_softmax(-1)
    sure = sorted(range(len(views)), key=lambda k: nats(log_p[k].exp()))
    chosen = sure[: int(fraction * len(views))]
    return F.normalize(views[chosen].mean(0), dim=0), log_p[chosen].exp().mean(0).log()


def plain_dmn(streams, *, look=None):
    text, kept, answers = text_features(), {c: [] for c in range(C)}, []
    for views in streams:
        f, z = look(views) if look else (views[0], SCALE * text @ views[0])
        label = int(z.argmax())
        kept[label] = sorted([*kept[label], (nats(z.softmax(-1)), f)], key=lambda each: each[0])[
            :50
        ]
        read = torch.stack(
            [
                sum(
                    math.exp(-5.5 * (1 - float(f @ m))) * m
                    for m in [text[c], *(m for _, m in kept[c])]
                )
                for c in range(C)
            ]
        )
        read = F.normalize(read, dim=-1)
        answers.append(((z.softmax(-1) + (SCALE * read @ f).softmax(-1)) / 2).log())
    return torch.stack(answers)


def confident_views(views, fraction=0.1):
    logits = SCALE * views @ text_features().T
    sure = sorted(range(len(views)), key=lambda k: nats(logits[k].softmax(-1)))
    chosen = sure[: int(fraction * len(views))]
    return F.normalize(views[chosen].mean(0), dim=0), logits[chosen].mean(0)


def plain_dpe(streams, *, base=math.e, alpha=6.0, beta=5.0, rate=6e-4, align=0.5):
    running, count, cache, answers = text_features(), 1, {}, []
    for views in streams:
        zero = (SCALE * views @ F.normalize(running, dim=-1).T).softmax(-1)
        sure = sorted(range(len(views)), key=lambda k: nats(zero[k]))[: int(0.1 * len(views))]
        f, label = (
            views[sure].mean(0),
            int((views[sure] @ F.normalize(running, dim=-1).T).mean(0).argmax()),
        )
        items = [*cache.get(label, []), (f, nats(zero[sure].mean(0)))]
        cache[label] = sorted(items, key=lambda each: each[1])[:3]
        seen = sorted(cache)
        means = torch.stack([sum(g for g, _ in cache[c]) / len(cache[c]) for c in seen])
        residuals = [torch.zeros_like(rows, requires_grad=True) for rows in (running, means)]

        def logits(g, t, v, seen=seen):
            z = list(SCALE * t @ g)
            for c, row in zip(seen, v, strict=True):
                z[c] = z[c] + alpha * torch.exp(-beta * (1 - g @ row))
            return torch.stack(z)

        t, v = (
            F.normalize(x + r, dim=-1) for x, r in zip((running, means), residuals, strict=True)
        )
        p = logits(f, t, v).softmax(-1)
        loss = -(p * p.log()).sum()
        loss = loss + align * F.cross_entropy(SCALE * v @ t[seen].T, torch.arange(len(seen)))
        loss.backward()
        torch.optim.AdamW(residuals, lr=rate, eps=1e-3, weight_decay=0.1).step()
        with torch.no_grad():
            t, v = (
                F.normalize(x + r, dim=-1) for x, r in zip((running, means), residuals, strict=True)
            )
            answers.append(logits(views[0], t, v))
            if nats(answers[-1].softmax(-1)) / math.log(C, base) < 0.1:
                running = (count * running + t) / (count + 1)
                count += 1
    return torch.stack(answers)


def plain_onzeta(streams):
    text, w, rho, answers = text_features(), text_features(), torch.zeros(C).double(), []
    for i, views in enumerate(streams, start=1):
        f = views[0]
        q = (SCALE * text @ f).softmax(-1) * rho.exp()
        q = q / q.sum()
        v = (SCALE / 4 * w @ f).softmax(-1)
        b = 0.8 * math.sqrt(min(i / (50 * C), 1))
        answers.append((b * v + (1 - b) * q).log())
        rho = (rho - 20 / math.sqrt(i) * (q - 1 / C)).clamp_min(0)
        w = F.normalize(w - SCALE / (8 * math.sqrt(i)) * torch.outer(v - q, f), dim=-1)
    return torch.stack(answers)


def plain_bca(streams):
    mu, pi, n, answers = list(text_features()), list(torch.eye(C).double()), [100] * C, []
    for views in streams:
        f = views[0]
        likelihood = torch.stack([SCALE * f @ m / m.norm() for m in mu]).softmax(-1)
        p = sum(share * row for share, row in zip(likelihood, pi, strict=True))
        answers.append(p.log())
        if p.max() > 0.9:
            k = int(likelihood.argmax())
            mu[k] = (n[k] * mu[k] + f) / (n[k] + 1)
            pi[k] = (n[k] * pi[k] + p) / (n[k] + 1)
            n[k] += 1
    return torch.stack(answers)


def plain_dota(streams):
    text, mu, n = text_features(), text_features(), torch.full((C,), 10.0).double()
    scatter, gaussian, answers = torch.zeros(D, D).double(), None, []
    for i, views in enumerate(streams, start=1):
        f, z = views[0], SCALE * text @ views[0]
        gamma = z.softmax(-1)
        r = f - gamma @ mu
        n = n + gamma
        mu = torch.stack([m + g / k * (f - m) for m, g, k in zip(mu, gamma, n, strict=True)])
        scatter = scatter + torch.outer(r, r)
        if i % 32 == 0:
            sigma = (C * torch.eye(D).double() / D + scatter) / (C + i)
            gaussian = sigma, mu
        if gaussian is not None:
            solved = torch.linalg.solve(gaussian[0], gaussian[1].T)  # (D, C)
            weight = 0.2 * i / (i + 10 * C)
            z = z + weight * ((f - gaussian[1] / 2) * solved.T).sum(-1)
        answers.append(z)
    return torch.stack(answers)


DEFINITIONS = {
    "dmn": lambda s: plain_dmn(s, look=confident_views),
    "dmn-weak": plain_dmn,
    "dmn:views": lambda s: plain_dmn(s, look=mean_view),
    "dpe": plain_dpe,
    "dpe:published": lambda s: plain_dpe(s, base=2.0),
    "onzeta": plain_onzeta,
    "bca": plain_bca,
    "dota": plain_dota,
    "tda": plain_tda,
    "tda:published": lambda s: plain_tda(s, base=2.0),
    "tda:views": lambda s: plain_tda(s, look=mean_view),
    "boostadapter": lambda s: plain_tda(s, boosted=0.1),
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", STREAMS)
def test_method_is_its_definition(name, seed):
    ours, _ = run(name, view_stream(seed))
    plain = DEFINITIONS[name](list(view_stream(seed)))
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-10)
    zero_shot = torch.stack([SCALE * text_features() @ v[0] for v in view_stream(seed)])
    assert not torch.allclose(ours.softmax(-1), zero_shot.softmax(-1), atol=1e-3)


@pytest.mark.parametrize("name", STREAMS)
def test_a_method_is_in_two_files(name):
    module = METHODS[name].initial.__module__
    known = (f"from {module} import", f'"{name}"')
    source = Path(dtpt.__file__).parent
    files = {p.relative_to(source).as_posix() for p in source.rglob("*.py") if is_in(p, known)}
    files.discard("analysis/streams.py")  # the methods of the study, when none are given
    assert files == {f"methods/{module.rpartition('.')[2]}.py", "methods/table.py"}


@cache
def text_of(path):
    """Return a module without its examples."""
    lines = path.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(">>>"))


def is_in(path, words):
    return any(word in text_of(path) for word in words)


@pytest.mark.parametrize("name", STREAMS)
def test_a_step_changes_nothing_and_shapes_stay(name):
    method, text = METHODS[name], text_features()
    initial = state = method.initial(text, logit_scale=SCALE)
    for views in view_stream(3, images=34):
        before = state_digest(state)
        first, after = method.step(state, views, text=text, logit_scale=SCALE)
        again, same = method.step(state, views, text=text, logit_scale=SCALE)
        assert state_digest(state) == before
        assert torch.equal(first, again)
        assert state_digest(after) == state_digest(same)
        state = after
    shapes = [(n, t.shape, t.dtype) for n, t in state_tensors(state)]
    assert shapes == [(n, t.shape, t.dtype) for n, t in state_tensors(initial)]
    assert state_digest(state) != state_digest(initial)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stored_state_goes_on_with_the_same_bits(name):
    method, text = METHODS[name], text_features().float()
    streams = [views.float() for views in view_stream(4, images=40)]

    def go_on(state, some):
        answers = []
        for views in some:
            logits, state = method.step(state, views, text=text, logit_scale=SCALE)
            answers.append(logits)
        return torch.stack(answers), state

    initial = method.initial(text, logit_scale=SCALE)
    whole, end = go_on(initial, streams)
    _, middle = go_on(initial, streams[:17])
    stored = pack_state(middle, initial=initial)
    fresh = method.initial(text, logit_scale=SCALE)  # as another process makes it
    read = unpack_state(stored, initial=fresh)
    assert state_digest(read) == state_digest(middle)
    rest, last = go_on(read, streams[17:])
    assert torch.equal(rest, whole[17:])
    assert state_digest(last) == state_digest(end)


@pytest.mark.parametrize("name", STREAMS)
def test_methods_of_the_original_view_read_no_other(name):
    method = resolve_method(name)
    assert method.uses_views == (not method.method.original)
    streams = list(view_stream(5, images=12))
    alone = [views[:1] for views in streams]
    is_same = torch.equal(run(name, streams)[0], run(name, alone)[0])
    assert is_same == method.method.original


def plain_temperature(adapted, reference):
    log_b, answers = 0.0, []
    for i, (z, c) in enumerate(zip(adapted, reference, strict=True), start=1):
        answers.append(math.exp(log_b) * z)
        log_b += 2 / math.sqrt(i) * float(c.softmax(-1).max() - answers[-1].softmax(-1).max())
    return torch.stack(answers)


@pytest.mark.parametrize("name", ["tda", "tda:views", "onzeta"])
def test_stream_temperature_is_its_definition(name):
    streams, method = list(view_stream(7)), resolve_method(f"{name}+stream-temperature").method
    adapted = DEFINITIONS[name](streams)
    zero_shot = torch.stack([SCALE * text_features() @ views[0] for views in streams])
    mean_views = torch.stack([mean_view(views)[1] for views in streams])
    reference = zero_shot if method.original else mean_views
    ours, _ = run(name, streams, method=method)
    plain = plain_temperature(adapted, reference)
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-10)
    assert torch.equal(ours.argmax(-1), adapted.argmax(-1))


def test_stream_temperature_leads_to_the_confidence_of_the_reference():
    method = resolve_method("tda+stream-temperature").method
    streams = list(view_stream(8, images=600, views=1))
    ours, _ = run("tda", streams, method=method, scale=5.0)
    tda, _ = run("tda", streams, scale=5.0)
    zero_shot = torch.stack([5.0 * text_features() @ views[0] for views in streams])
    mean, before, target = (
        float(z[100:].softmax(-1).max(-1).values.mean()) for z in (ours, tda, zero_shot)
    )
    assert abs(mean - target) < 0.02
    assert before - target > 0.05


def test_stream_temperature_is_for_streams_of_all_settings():
    with pytest.raises(MethodError, match="state"):
        resolve_method("zero-shot+stream-temperature")
    published = resolve_method("tda:published+stream-temperature")
    assert published == resolve_method(published.label)
    assert published.name == "tda:published+stream-temperature"
    streams = list(view_stream(6, images=30))
    own, plain = (
        run("tda", streams, method=m.method)[0] for m in (published.on_dataset("dtd"), published)
    )
    assert not torch.equal(own, plain)


PUBLISHED = {
    "tda:published": lambda s: plain_tda(s, base=2.0, alpha=2.0, beta=3.0),
    "dpe:published": lambda s: plain_dpe(s, base=2.0, alpha=6.0, beta=3.0, rate=2e-4, align=0.2),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_are_those_of_the_data_set(name):
    published = resolve_method(name)
    sun, own = published.on_dataset("sun397"), published.on_dataset("folder:pets")
    streams = list(view_stream(6))
    ours, _ = run(name, streams, step=sun.method.step)
    torch.testing.assert_close(ours, PUBLISHED[name](streams), rtol=0, atol=1e-10)
    assert own == published
    plain = resolve_method(name.removesuffix(":published"))
    assert plain.on_dataset("sun397") == plain
    assert set(published.method.step_of) == set(NAMED_SETS)


def test_a_memory_longer_than_a_block_keeps_the_surest_of_each_class():
    generator = torch.Generator().manual_seed(0)
    text = torch.randn(60, 4, generator=generator)
    memory, kept = empty_memory(text, capacity=3), {}
    for _ in range(900):
        label = int(torch.randint(60, (1,), generator=generator))
        feature, entropy = torch.randn(4, generator=generator), torch.rand(1, generator=generator)
        memory, _ = remember(memory, feature, label=label, entropy=entropy[0], capacity=3)
        kept.setdefault(label, []).append((float(entropy), feature))
    assert memory.size == 180 > BLOCK
    query = torch.randn(4, generator=generator)
    cosines = memory.cosines(query)
    for label, items in kept.items():
        surest = sorted(items, key=lambda item: item[0])[:3]
        expected = sorted(float(feature @ query) for _, feature in surest)
        ours = sorted(cosines[memory.owner[:180] == label].tolist())
        assert ours == pytest.approx(expected, abs=1e-6)


# ---- states as files


def test_what_a_cache_has_not_filled_takes_no_space():
    text = torch.eye(400, 64)
    method = METHODS["tda"]
    initial = method.initial(text, logit_scale=SCALE)
    _, state = method.step(initial, text[:1], text=text, logit_scale=SCALE)
    whole = sum(tensor.nbytes for _, tensor in state_tensors(state))
    assert len(pack_state(initial, initial=initial)) < 200  # its hash
    assert len(pack_state(state, initial=initial)) < whole / 3


def test_one_flipped_bit_of_a_state_is_noticed():
    text = torch.eye(4)
    initial = METHODS["tda"].initial(text, logit_scale=SCALE)
    _, state = METHODS["tda"].step(initial, text[:1], text=text, logit_scale=SCALE)
    data = bytearray(pack_state(state, initial=initial))
    assert state_digest(unpack_state(bytes(data), initial=initial)) == state_digest(state)
    data[-1] ^= 1  # of a number that stays one
    with pytest.raises(MethodError, match="damaged"):
        unpack_state(bytes(data), initial=initial)


def test_states_of_other_shapes_are_refused():
    initial, other = (METHODS["tda"].initial(torch.eye(c, 4), logit_scale=1.0) for c in (3, 4))
    with pytest.raises(MethodError, match="shape"):
        pack_state(other, initial=initial)
    filled = METHODS["tda"].step(other, torch.eye(1, 4), text=torch.eye(4, 4), logit_scale=1.0)[1]
    with pytest.raises(MethodError, match="positive"):
        unpack_state(pack_state(filled, initial=other), initial=initial)
    with pytest.raises(MethodError, match="list"):
        state_digest([torch.zeros(1)])
    wrong = (torch.tensor([math.nan]),)
    with pytest.raises(MethodError, match="numbers"):
        unpack_state(pack_state(wrong, initial=(torch.zeros(1),)), initial=(torch.zeros(1),))
