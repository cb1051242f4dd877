"""The code of the documentation that is not run by tests, and why: one table.

A block is named by its page and some of its words; `*` means all blocks of a page.
"""

NETWORK = "downloads something"
WEIGHTS = "needs the weights of a real CLIP, which are downloaded"
GIVEN = "needs a CLIP's weights and ImageNet's images, which the repository may not hold"
HOURS = "takes minutes to hours"
ITSELF = "runs or builds everything, of which this test is a part"
CLUSTER = "needs a cluster"
SERVER = "needs a running server; tests/web/test_documents.py runs it beside one"
LIBRARIES = "needs models of open_clip and transformers; tests/clip/loading compares with both"

NOT_RUN: dict[tuple[str, str], str] = {
    ("CONTRIBUTING.md", "make test"): ITSELF,
    ("README.md", "make demo"): ITSELF,
    ("docs/clip.md", "*"): GIVEN,
    ("docs/cluster.md", "*"): CLUSTER,
    ("docs/findings.md", "*"): HOURS,
    ("docs/gpu.md", "torch.compile"): HOURS,
    ("docs/models.md", "*"): WEIGHTS,
    ("docs/own-weights.md", "dtpt.from_open_clip"): LIBRARIES,
    ("docs/own-weights.md", "dtpt models add ViT-B-16/openai"): WEIGHTS,
    ("docs/packs.md", "# takes minutes"): HOURS,
    ("docs/pocket.md", "*"): HOURS,
    ("docs/quickstart.md", "git clone"): NETWORK,
    ("docs/reproduce.md", "dtpt datasets check"): WEIGHTS,
    ("docs/serve.md", "*"): SERVER,
    ("docs/streams.md", "dtpt analyze streams"): HOURS,
    ("docs/studies.md", "*"): HOURS,
    ("training/README.md", "*"): HOURS,
}
