/** What surrounds the content: jumps, tabs and the choice between light and dark. */

import { byId, h } from "./dom.js";

/** Jumps within the page; the address keeps its settings, which an anchor would replace. */
export function mountJumps() {
  for (const [from, to] of [["skip", "main"], ["summary", "results"]]) {
    byId(from).addEventListener("click", () => {
      byId(to).scrollIntoView({ block: "start" });
      byId(to).focus({ preventScroll: true });
    });
  }
}

/** The line at the lower edge of narrow screens, where the answers are out of sight. */
export function summarise(text) {
  byId("summary").hidden = false;
  byId("summary").replaceChildren(h("span", {}, text), h("span", {}, "See more ↓"));
}

/** Tabs by mouse, arrow keys. */
export function mountTabs() {
  const tabs = [...document.querySelectorAll('[role="tab"]')];

  function show(tab, focus) {
    for (const one of tabs) {
      const on = one === tab;
      one.setAttribute("aria-selected", on);
      one.tabIndex = on ? 0 : -1;
      byId(one.getAttribute("aria-controls")).hidden = !on;
    }
    if (focus) tab.focus();
  }

  for (const [place, tab] of tabs.entries()) {
    tab.addEventListener("click", () => show(tab, false));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) show(tabs.at((place + step) % tabs.length), true);
    });
  }
}

const KEPT = "dtpt-theme";

/** Light or dark: what the system says until somebody chooses. */
export function mountTheme() {
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () => localStorage.getItem(KEPT) ?? (system.matches ? "dark" : "light");

  function apply() {
    const chosen = localStorage.getItem(KEPT);
    if (chosen) document.documentElement.dataset.theme = chosen;
    button.textContent = current() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
  }

  button.addEventListener("click", () => {
    localStorage.setItem(KEPT, current() === "dark" ? "light" : "dark");
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
