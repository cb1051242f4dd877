"""What dtpt tells a program's log, and that it is silent where nobody listens."""

import logging
import subprocess
import sys

import dtpt


def test_loading_text_features_and_weights_are_told(model_folder, pictures, caplog):
    with caplog.at_level(logging.DEBUG, logger="dtpt"):
        model = dtpt.load_model(f"local-dir:{model_folder}", device="cpu")
        made = dtpt.Classifier(model, ["cat", "dog"], method="d-tpt@auto", views=8)
        weight = made.fit_weight(pictures[:2])
    told = {record.getMessage(): record.levelname for record in caplog.records}
    loaded = f"Loaded {model.name}, fingerprint {model.fingerprint[:12]}, on cpu"
    assert told[loaded] == "INFO"
    assert told["Computed text features of 2 classes"] == "DEBUG"
    assert told[f"Selected lambda {weight:g} for d-tpt@auto=0.9 from 2 images"] == "INFO"


def test_a_program_that_does_not_log_sees_nothing():
    code = "import logging, dtpt; logging.getLogger('dtpt.clip').warning('seen')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
    assert [type(h) for h in logging.getLogger("dtpt").handlers].count(logging.NullHandler) == 1
