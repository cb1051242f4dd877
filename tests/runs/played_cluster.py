"""A cluster that is played: machines and actors that do what a test says, in no time."""

from concurrent.futures import Future
from types import SimpleNamespace

from dtpt.runs.cluster.actors import Porter
from dtpt.runs.cluster.machines import describe_here
from dtpt.runs.orders import Answered, Batch, Item, Place, Ready, Returned

from dtpt.data import Sample


class Actor:
    """Plays an actor: calls are kept, and answered when the test says so."""

    def __init__(self, world, kind, node):
        self.world, self.kind, self.node = world, kind, node
        self.calls = []
        self.is_killed = False
        world.actors.append(self)

    def __getattr__(self, name):
        if name not in ("describe", "lacks", "start", "work", "close"):
            raise AttributeError(name)
        return SimpleNamespace(remote=lambda *words: self.call(name, *words))

    def call(self, name, *words):
        answer = Future()
        self.calls.append((name, words, answer))
        self.world.react(self, name, answer)
        return SimpleNamespace(future=lambda: answer)

    def works(self):
        return [(words[0], answer) for name, words, answer in self.calls if name == "work"]

    def answer(self):
        """Answer the oldest batch."""
        batch, answer = next(entry for entry in self.works() if not entry[1].done())
        places = [Place(batch.number, item.sample.id) for item in batch.items]
        answer.set_result([Answered(place, image_key="key") for place in places])

    def fail(self, error):
        for _, answer in self.works():
            if not answer.done():
                answer.set_exception(error)


class World:
    """Plays a cluster."""

    def __init__(self):
        self.actors = []
        self.nodes = {}
        self.notes = []
        self.joined = []
        self.facts = describe_here()
        self.said = Ready()
        self.deadly_start = None

    def add(self, node, **resources):
        self.nodes[node] = {
            "NodeID": node,
            "Alive": True,
            "NodeManagerHostname": "host",
            "Resources": resources or {"CPU": 1.0},
        }

    def react(self, actor, name, answer):
        if name == "describe":
            if isinstance(self.facts, Exception):
                answer.set_exception(self.facts)
            else:
                answer.set_result(self.facts)
        elif name == "lacks":
            answer.set_result({})
        elif name == "start":
            if self.deadly_start is not None:
                answer.set_exception(self.deadly_start)
            else:
                answer.set_result(self.said)

    @property
    def replicas(self):
        return [one for one in self.actors if one.kind is not Porter and not one.is_killed]


def batch(number, *names):
    items = tuple(Item(Sample(name, 0, None), (0,)) for name in names or (f"p{number}",))
    return Batch(number, 0, 0, items)


def ready(crew):
    """Wait until all replicas are there."""
    crew.submit(batch(0))
    crew.collect()
    while crew._mail.take(0):
        pass
    crew._events.clear()


def collect_all(crew):
    while True:
        crew.collect()


def drain(crew):
    """Return what has happened up to now."""
    while crew._mail.take(0):
        pass
    found = [event for event in crew._events if event != Returned(())]
    crew._events.clear()
    return found
