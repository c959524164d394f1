// Keeps the page current and copies commands. The page is whole without it.
"use strict";
(() => {
  const EVERY = 10000;
  const live = document.getElementById("live");
  const asof = document.getElementById("asof");
  const trouble = document.getElementById("trouble");
  document.documentElement.classList.add("js");

  // What the reader has changed by hand stays: which details are open, what is typed or chosen.
  const keeps = (element, name) =>
    (name === "open" && element.tagName === "DETAILS") ||
    ((name === "value" || name === "selected") && element.closest("form") !== null);

  const keyOf = (node) =>
    node.nodeType === 1 ? node.id || node.getAttribute("data-key") || "" : "";
  const alike = (a, b) =>
    a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

  // Makes one tree like another and keeps every element that is in both, and so focus and scroll.
  const follow = (now, next) => {
    if (now.nodeType !== 1) {
      if (now.nodeValue !== next.nodeValue) now.nodeValue = next.nodeValue;
      return;
    }
    for (const { name, value } of [...next.attributes]) {
      if (now.getAttribute(name) !== value && !keeps(now, name)) now.setAttribute(name, value);
    }
    for (const { name } of [...now.attributes]) {
      if (!next.hasAttribute(name) && !keeps(now, name)) now.removeAttribute(name);
    }
    const byKey = new Map();
    for (const child of now.childNodes) if (keyOf(child)) byKey.set(keyOf(child), child);
    let at = now.firstChild;
    for (const child of [...next.childNodes]) {
      const key = keyOf(child);
      const known = key ? byKey.get(key) : at;
      byKey.delete(key);
      if (known && alike(known, child)) {
        if (known === at) at = at.nextSibling;
        else now.insertBefore(known, at);
        follow(known, child);
      } else {
        now.insertBefore(document.importNode(child, true), at);
      }
    }
    while (at) {
      const rest = at.nextSibling;
      at.remove();
      at = rest;
    }
  };

  const isSelecting = () => {
    const selection = document.getSelection();
    return selection !== null && !selection.isCollapsed && live.contains(selection.anchorNode);
  };
  const choosing = () => document.activeElement?.tagName === "SELECT";

  let running = false;
  const renew = async () => {
    if (running || document.hidden || isSelecting() || choosing()) return;
    running = true;
    try {
      const answer = await fetch(location.href, {
        cache: "no-store",
        signal: AbortSignal.timeout(EVERY),
      });
      if (!answer.ok) throw new Error("it answered " + answer.status);
      const text = await answer.text();
      const next = new DOMParser().parseFromString(text, "text/html");
      const nextLive = next.getElementById("live");
      if (!nextLive) throw new Error("something else answered");
      const focused = document.activeElement;
      follow(live, nextLive);
      follow(asof, next.getElementById("asof"));
      if (focused !== document.activeElement && focused?.isConnected) {
        focused.focus({ preventScroll: true });
      }
      if (trouble.textContent) trouble.textContent = "";
    } catch (error) {
      const words = "Not current: the exporter does not answer (" + error.message + ").";
      if (trouble.textContent !== words) trouble.textContent = words;
    } finally {
      running = false;
    }
  };
  setInterval(renew, EVERY);
  document.addEventListener("visibilitychange", renew);

  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    // Without TLS there is no clipboard but the one of a selection.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("not copied");
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const code = button.parentElement.querySelector("code");
    try {
      await copy(code.textContent);
      button.textContent = "Copied";
    } catch {
      document.getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    button.focus({ preventScroll: true });
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
})();
