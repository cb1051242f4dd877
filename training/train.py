"""Train `pocket` from nothing: `python -m training.train` fetches and rasterises if needed, trains.

The learning rate warms up, stays, and falls to zero over the last part. Until it falls nothing
depends on the number of steps, so a run may be stopped, and continued for more steps than first
planned, without another result than one that knew. Checkpoints and log go to the work folder.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import artwork as artwork_module
from training.artwork import Artwork
from training.batches import Batch, Batches, stream
from training.captions import train_tokenizer
from training.model import (
    Average,
    InTraining,
    concept_loss,
    contrastive_loss,
    hold_embedding_scale,
    hold_temperature,
    new_model,
)

PULL = 10.0  # weight of the distance between a caption and its concept's free vector
REFRESH = {False: 4, True: 16}  # steps between computations of the bank; True: text is calm
CALM = 0.2  # fraction of its learning rate that the text tower keeps


@dataclass(frozen=True)
class Settings:
    """All that decides the result, apart from the artwork.

    Attributes:
        steps: Length of the run.
        decay_from: Step from which the learning rate falls, to zero at `steps`.
        warmup: Steps until the full learning rate.
        pull_from: Step from which captions are not only classified by the free vectors, but pulled
            onto them.
        joint_from: Step from which the towers face each other. Before, both learn one free vector
            per concept: two random towers that wait for each other lose a long time.
        calm_from: Step from which the text tower learns at a fifth of its rate: it knows the names,
            and a target that moves too fast holds the images back.
        ramp: Steps until augmentation is full.
        concepts: Concepts per batch.
        per_concept: Images of each, in different styles.
        rate: Learning rate of the image tower.
        text_rate: Learning rate of the text tower.
        embedding_rate: Learning rate of the token and position embeddings, which are small numbers.
        weight_decay: Of matrices and convolutions only.
        average: Decay of the moving average per step.
        seed: Of weights, batches and augmentation.
    """

    steps: int = 5400
    decay_from: int = 2600
    warmup: int = 100
    pull_from: int = 800
    joint_from: int = 1800
    calm_from: int = 2400
    ramp: int = 2500
    concepts: int = 64
    per_concept: int = 2
    rate: float = 3e-3
    text_rate: float = 1e-3
    embedding_rate: float = 2e-4
    weight_decay: float = 0.05
    average: float = 0.998
    seed: int = 0


def rate_factor(step: int, settings: Settings) -> float:
    """Fraction of the full learning rate at a step: up, level, and down along a half cosine."""
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    if step < settings.decay_from:
        return 1.0
    progress = (step - settings.decay_from) / max(1, settings.steps - settings.decay_from)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def make_optimizer(
    model: InTraining, prototypes: torch.nn.Parameter, *, settings: Settings
) -> torch.optim.AdamW:
    """AdamW with three learning rates; norms, biases, embeddings and temperature do not decay."""
    groups: dict[tuple[float, float], list[Tensor]] = {(settings.text_rate, 0.0): [prototypes]}
    text_rates = (settings.text_rate, settings.embedding_rate)
    for name, parameter in model.named_parameters():
        text = name.startswith("clip.text.")
        embedding = name.startswith(("clip.text.token_emb", "clip.text.positional_emb"))
        rate = settings.text_rate if text else settings.rate
        rate = settings.embedding_rate if embedding else rate
        decays = parameter.ndim > 1 and "embedding" not in name
        decay = settings.weight_decay if decays else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": own,
                "lr": rate,
                "full_rate": rate,
                "weight_decay": decay,
                "text": rate in text_rates,
            }
            for (rate, decay), own in groups.items()
        ],
        betas=(0.9, 0.98),
    )


class Trainer:
    """State of a run: model, optimizer, average, free vectors, bank of text features, step."""

    def __init__(self, artwork: Artwork, tokenizer_json: bytes, *, settings: Settings) -> None:
        generator = torch.Generator().manual_seed(settings.seed)
        self.artwork, self.settings, self.step = artwork, settings, 0
        self.model = InTraining(new_model(tokenizer_json, generator=generator))
        self.average = Average(self.model, decay=settings.average)
        width = self.model.clip.config.embed_dim
        vectors = torch.randn(len(artwork.concepts), width, generator=generator)
        self.prototypes = torch.nn.Parameter(F.normalize(vectors, dim=1))
        self.bank = self.prototypes.detach().clone()
        self.optimizer = make_optimizer(self.model, self.prototypes, settings=settings)
        self.names = self.batches()

    @property
    def joint(self) -> bool:
        """Whether the towers face each other already."""
        return self.step >= self.settings.joint_from

    @property
    def calm(self) -> bool:
        """Whether the text tower has slowed down."""
        return self.step >= self.settings.calm_from

    def _apart(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss of images against free vectors, and of captions against the same ones."""
        scale = self.model.clip.log_logit_scale.exp()
        images = self.model.image_features(batch.images)
        prototypes = F.normalize(self.prototypes, dim=1)
        loss, accuracy = concept_loss(images, prototypes, labels=batch.labels, scale=scale)
        pulled = self.step >= self.settings.pull_from
        if pulled or self.step % 2 == 0:
            texts = self.model.text_features(batch.tokens, batch.ends)
            fixed = prototypes.detach()
            loss = loss + concept_loss(texts, fixed, labels=batch.fresh, scale=scale.detach())[0]
            if pulled:
                cosines = (texts * fixed[batch.fresh]).sum(dim=1)
                loss = loss + PULL * (1 - cosines).mean()
        return loss, accuracy

    def _joint(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """CLIP's loss, against a bank that is computed anew every few steps."""
        if self.step % REFRESH[self.calm] == 0:
            self._fill_bank()
        images = self.model.image_features(batch.images)
        texts = self.model.text_features(batch.tokens, batch.ends)
        result = contrastive_loss(
            images,
            texts,
            labels=batch.labels,
            fresh=batch.fresh,
            bank=self.bank,
            scale=self.model.clip.log_logit_scale.exp(),
        )
        self.bank[batch.fresh] = texts.detach()
        return result

    @torch.no_grad()
    def _fill_bank(self) -> None:
        """Compute a text feature of every concept."""
        random = np.random.default_rng((self.settings.seed, 2, self.step))
        everything = np.arange(len(self.artwork.concepts))
        self.bank = self.model.text_features(*self.names.captions(everything, random))

    def batches(self) -> Batches:
        """Return the stream of batches from the present step on."""
        return Batches(
            self.artwork,
            self.model.clip.tokenizer,
            seed=self.settings.seed,
            concepts=min(self.settings.concepts, len(self.artwork.concepts)),
            per_concept=self.settings.per_concept,
            ramp=self.settings.ramp,
            first=self.step,
        )

    def advance(self, batch: Batch) -> dict[str, float]:
        """Take one step and return what it measured."""
        factor = rate_factor(self.step, self.settings)
        for group in self.optimizer.param_groups:
            calm = self.calm and group["text"]
            group["lr"] = group["full_rate"] * factor * (CALM if calm else 1.0)
        self.model.train()
        loss, accuracy = self._joint(batch) if self.joint else self._apart(batch)
        self._descend(loss)
        self.step += 1
        self.average.update(self.model, self.step)
        return {"loss": float(loss.detach()), "accuracy": float(accuracy)}

    def _descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        hold_embedding_scale(self.model.clip)
        hold_temperature(self.model.clip)

    def save(self, path: Path) -> None:
        """Write a checkpoint from which the run goes on as if it had not stopped."""
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "bank": self.bank,
            "prototypes": self.prototypes.detach(),
        }
        temporary = path.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(path)

    def load(self, path: Path) -> None:
        """Continue from a checkpoint."""
        state: dict[str, Any] = torch.load(path, weights_only=True)
        self.step, self.bank = state["step"], state["bank"]
        self.prototypes.data.copy_(state["prototypes"])
        self.model.load_state_dict(state["model"])
        self.average.model.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])


def run(
    trainer: Trainer, *, workers: int, report_every: int, report: Callable[[dict[str, float]], None]
) -> None:
    """Train to the end, from wherever the trainer is; `report` gets means over some steps."""
    measured: list[dict[str, float]] = []
    since = time.perf_counter()
    for batch in stream(trainer.batches(), workers=workers):
        if trainer.step >= trainer.settings.steps:
            break
        measured.append(trainer.advance(batch))
        if trainer.step % report_every == 0 or trainer.step == trainer.settings.steps:
            means = {key: sum(m[key] for m in measured) / len(measured) for key in measured[0]}
            seconds = (time.perf_counter() - since) / len(measured)
            report(_entry(trainer, means, seconds=seconds))
            measured, since = [], time.perf_counter()


def _entry(trainer: Trainer, means: dict[str, float], *, seconds: float) -> dict[str, float]:
    scale = trainer.model.clip.logit_scale
    return {
        "step": trainer.step,
        **{key: round(value, 4) for key, value in means.items()},
        "logit_scale": round(scale, 3),
        "rate_factor": round(rate_factor(trainer.step - 1, trainer.settings), 4),
        "seconds_per_step": round(seconds, 3),
    }


def _parse() -> tuple[Settings, argparse.Namespace]:
    parser = argparse.ArgumentParser(description="Train pocket from nothing.")
    for name, value in asdict(Settings()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--work", type=Path, default=artwork_module.WORK)
    parser.add_argument("--run", default="full", help="folder of this run in the work folder")
    parser.add_argument("--workers", type=int, default=1, choices=(0, 1))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=200)
    parser.add_argument("--without-style", default="", help="leave one style out, to test on it")
    options = parser.parse_args()
    names = asdict(Settings())
    return Settings(**{k: v for k, v in vars(options).items() if k in names}), options


def main() -> None:
    """Fetch if needed, train or continue."""
    settings, options = _parse()
    torch.set_num_threads(options.threads)
    if not (options.work / "drawings.npy").exists():
        artwork_module.build(options.work)
    artwork = artwork_module.load(options.work, without=options.without_style)
    folder = options.work / options.run
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_json = train_tokenizer(artwork.concepts)
    (folder / "tokenizer.json").write_bytes(tokenizer_json)
    (folder / "settings.json").write_text(json.dumps(asdict(settings), indent=1) + "\n")
    trainer = Trainer(artwork, tokenizer_json, settings=settings)
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        trainer.load(checkpoint)

    def report(entry: dict[str, float]) -> None:
        with (folder / "log.jsonl").open("a") as log:
            log.write(json.dumps(entry) + "\n")
        print(json.dumps(entry), flush=True)
        if trainer.step % options.save_every == 0 or trainer.step == settings.steps:
            trainer.save(checkpoint)

    run(trainer, workers=options.workers, report_every=25, report=report)


if __name__ == "__main__":
    main()
