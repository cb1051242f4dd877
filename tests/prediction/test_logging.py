"""What dtpt logs, and that a program without logging sees nothing."""

import logging
import subprocess
import sys

import dtpt


def test_loading_text_features_and_selected_lambdas_are_logged(model_folder, images, caplog):
    with caplog.at_level(logging.DEBUG, logger="dtpt"):
        model = dtpt.load_model(f"local-dir:{model_folder}", device="cpu")
        made = dtpt.Classifier(model, ["cat", "dog"], method="d-tpt@auto", views=8)
        lambda_ = made.fit_lambda(images[:2])
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    loaded = f"Loaded {model.name}, fingerprint {model.fingerprint[:12]}, on cpu"
    assert levels[loaded] == "INFO"
    assert levels["Computed text features of 2 classes"] == "DEBUG"
    assert levels[f"Selected lambda {lambda_:g} for d-tpt@auto=0.9 from 2 images"] == "INFO"


def test_a_program_that_does_not_log_sees_nothing():
    code = "import logging, dtpt; logging.getLogger('dtpt.clip').warning('seen')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
    assert [type(h) for h in logging.getLogger("dtpt").handlers].count(logging.NullHandler) == 1
