"use strict";
// Tabs over the runs. Without this script, and in print, all runs are there one below the other.
for (const bar of document.querySelectorAll('[role="tablist"]')) {
  const tabs = [...bar.children];
  const panel = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
  const show = (chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", tab === chosen);
      tab.tabIndex = tab === chosen ? 0 : -1;
      panel(tab).hidden = tab !== chosen;
    }
  };
  bar.addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) show(tab);
  });
  bar.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const tab = tabs[(to + tabs.length) % tabs.length];
    show(tab);
    tab.focus();
  });
  bar.hidden = false;
  show(tabs[0]);
}
