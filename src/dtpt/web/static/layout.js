/** What surrounds the content: jumps, tabs, and the choice between light and dark. */

import { byId, h } from "./dom.js";

/** Jumps within the page; an anchor would replace the settings in the address. */
export function mountJumps() {
  for (const [from, to] of [["skip", "main"], ["summary", "results"]]) {
    byId(from).addEventListener("click", () => {
      byId(to).scrollIntoView({ block: "start" });
      byId(to).focus({ preventScroll: true });
    });
  }
}

/** The line at the lower edge of narrow screens, where the results are out of sight. */
export function summarise(text) {
  byId("summary").hidden = false;
  byId("summary").replaceChildren(h("span", {}, text), h("span", {}, "Details ↓"));
}

/** Tabs by mouse and arrow keys. */
export function mountTabs() {
  const tabs = [...document.querySelectorAll('[role="tab"]')];

  function show(selected, focus) {
    for (const tab of tabs) {
      const on = tab === selected;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      byId(tab.getAttribute("aria-controls")).hidden = !on;
    }
    if (focus) selected.focus();
  }

  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => show(tab, false));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) show(tabs.at((index + step) % tabs.length), true);
    });
  }
}

const THEME = "dtpt-theme"; // in the browser's storage

/** Light or dark: the system's choice until the reader makes one. */
export function mountTheme() {
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const current = () => localStorage.getItem(THEME) ?? (system.matches ? "dark" : "light");

  function apply() {
    const chosen = localStorage.getItem(THEME);
    if (chosen) document.documentElement.dataset.theme = chosen;
    button.textContent = current() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
  }

  button.addEventListener("click", () => {
    localStorage.setItem(THEME, current() === "dark" ? "light" : "dark");
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
